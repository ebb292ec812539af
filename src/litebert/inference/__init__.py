"""A model on disk, and what it answers."""

from litebert.inference.model import PACKAGED, Model, packaged_model

__all__ = ["PACKAGED", "Model", "packaged_model"]
