"""Families of tasks: one file a kind, all behind the protocol of `family.py`."""
