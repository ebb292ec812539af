"""Loading a model from disk and asking it for answers."""

from litebert.inference.model import Model

__all__ = ["Model"]
