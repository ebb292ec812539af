"""Asking a loaded model for answers."""
