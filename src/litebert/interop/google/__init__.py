"""Checkpoints of Google's code (google-research/albert), read and written without TensorFlow."""

from litebert.interop.google.convert import GoogleExport, GoogleImport, export_checkpoint, import_checkpoint

__all__ = ["GoogleExport", "GoogleImport", "export_checkpoint", "import_checkpoint"]
