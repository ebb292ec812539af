"""A model on disk, and what it answers."""

from litebert.inference.model import PACKAGED, Model

__all__ = ["PACKAGED", "Model"]
