"""Read input files: texts, tables, JSON and Parquet; compressed, local or by URL.

`source` looks up, opens and decompresses inputs and splits them into lines; `tables`
reads them as rows; `findings` are the results of checking them. Memory is bounded, and
every error names the file and the line.
"""
