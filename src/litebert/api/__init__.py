"""The library as Python users call it; the command line calls nothing else."""
