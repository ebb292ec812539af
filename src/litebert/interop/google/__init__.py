"""Checkpoints of Google's code (google-research/albert), read and written without TensorFlow."""

from litebert.interop.google.convert import export_checkpoint, import_checkpoint

__all__ = ["export_checkpoint", "import_checkpoint"]
