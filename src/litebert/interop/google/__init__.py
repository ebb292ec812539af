"""Checkpoints of Google's code (google-research/albert), read and written without TensorFlow."""

from litebert.interop.google.exporting import GoogleExport, export_checkpoint
from litebert.interop.google.importing import GoogleImport, import_checkpoint

__all__ = ["GoogleExport", "GoogleImport", "export_checkpoint", "import_checkpoint"]
