"""Read input files: texts, tables, JSON and Parquet; compressed, local or by URL.

Inputs are looked up by `find`, decompressed by `source`, cut into `lines`, and read as rows by the
module of their kind. Memory is bounded, and every error names the file and the line.
"""
