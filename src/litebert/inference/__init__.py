"""Loading a model from disk and asking it for answers."""

from litebert.inference.model import PACKAGED, Model

__all__ = ["PACKAGED", "Model"]
