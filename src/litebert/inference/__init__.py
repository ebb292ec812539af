"""A model on disk, and what it answers."""

from litebert.answers import (
    Choice,
    Classification,
    Coherence,
    Explanation,
    Filling,
    Join,
    Match,
    Order,
    Results,
    Score,
    SpanFound,
    Tagged,
    WordAttribution,
    WordScore,
)
from litebert.inference.embedding import TextIndex
from litebert.inference.finetuned import Finetuned
from litebert.inference.model import Model
from litebert.inference.packaged import PACKAGED, packaged_model

__all__ = [
    "PACKAGED",
    "Choice",
    "Classification",
    "Coherence",
    "Explanation",
    "Filling",
    "Finetuned",
    "Join",
    "Match",
    "Model",
    "Order",
    "Results",
    "Score",
    "SpanFound",
    "Tagged",
    "TextIndex",
    "WordAttribution",
    "WordScore",
    "packaged_model",
]
