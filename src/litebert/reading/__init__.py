"""Read input files: texts, tables, JSON and Parquet; compressed, local or by URL.

`source` looks inputs up, on disk or, by `remote`, in object storage; `pieces` are their
decompressed bytes, and `lines` those of a text. `tables` has the rows of delimited and
JSON files, and `parquet`, `spreadsheet` and `words` those of other formats. `findings`
are the results of checking them. Memory is bounded, and every error names the file and
the line.
"""
