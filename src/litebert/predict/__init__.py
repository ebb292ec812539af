"""Answers from a model on disk."""

from litebert.predict.downstream import Choice, Classification, SpanFound, Tagged
from litebert.predict.finetuned import Finetuned
from litebert.predict.model import Model
from litebert.predict.pretrained import Filling, Order

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
