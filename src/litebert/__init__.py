"""ALBERT, whole."""
