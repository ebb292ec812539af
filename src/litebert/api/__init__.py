"""The library as Python users call it; the command line only calls these functions."""
