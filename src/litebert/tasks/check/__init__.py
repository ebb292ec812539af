"""Checks of examples before training: the user's own files, and named tasks."""

from litebert.tasks.check.check import check_dataset, check_files
from litebert.tasks.check.findings import DataReport, SplitReport

__all__ = ["DataReport", "SplitReport", "check_dataset", "check_files"]
