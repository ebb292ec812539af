"""Conversion from and to the file formats of other programs."""
