"""Checkpoints of Google's code (google-research/albert), read and written without TensorFlow."""

from litebert.interop.google.exporting import ExportReport, export_checkpoint
from litebert.interop.google.importing import ImportReport, import_checkpoint

__all__ = ["ExportReport", "ImportReport", "export_checkpoint", "import_checkpoint"]
