"""Answers from a model on disk."""

from litebert.inference.downstream import Choice, Classification, SpanFound, Tagged
from litebert.inference.finetuned import Finetuned
from litebert.inference.model import Model
from litebert.inference.pretrained import Filling, Order

__all__ = [
    "Choice",
    "Classification",
    "Filling",
    "Finetuned",
    "Model",
    "Order",
    "SpanFound",
    "Tagged",
]
