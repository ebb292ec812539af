"""Answers from a model on disk."""

from litebert.predict.model import Filling, Model, Order

__all__ = ["Filling", "Model", "Order"]
