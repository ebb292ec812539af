"""Your own files of examples: CSV, TSV, JSON, Parquet and CoNLL, as a data set."""

from litebert.tasks.own.dataset import TableDataset, table_dataset

__all__ = ["TableDataset", "table_dataset"]
