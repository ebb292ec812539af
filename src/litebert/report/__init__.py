"""Reports of runs: self-contained pages, tables for the terminal and for programs,
figures.
"""
