"""Answers from a model on disk."""

from litebert.inference.coherence import Coherence, Join
from litebert.inference.downstream import Choice, Classification, SpanFound, Tagged
from litebert.inference.embedding import Match, TextIndex
from litebert.inference.explaining import Explanation, WordAttribution
from litebert.inference.finetuned import Finetuned
from litebert.inference.model import Model
from litebert.inference.packaged import PACKAGED, packaged_model
from litebert.inference.pretrained import Filling, Order
from litebert.inference.results import Results
from litebert.inference.scoring import Score, WordScore

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
