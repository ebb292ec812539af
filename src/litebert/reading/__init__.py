"""Read input files: texts, tables, JSON and Parquet; compressed, local or by URL.

Inputs are looked up, opened, decompressed and cut into lines by `source`, and read as rows by `tables`; `findings`
are the results of checking them. Memory is bounded, and every error names the file and the line.
"""
