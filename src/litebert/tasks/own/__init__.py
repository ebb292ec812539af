"""A user's own files of examples as a data set: CSV, TSV, JSON, Parquet and CoNLL."""

from litebert.tasks.own.dataset import TableDataset, table_dataset

__all__ = ["TableDataset", "table_dataset"]
