"""Families of tasks: one file per kind, all behind the protocol of `family.py`."""
