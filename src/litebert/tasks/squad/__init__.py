"""SQuAD 1.1 and 2.0: questions answered by a span of a text (official squad_utils.py)."""

from litebert.tasks.squad.conditional import ConditionalSpanAnswering
from litebert.tasks.squad.dataset import DATASETS
from litebert.tasks.squad.decode import Span, SpanAnswer
from litebert.tasks.squad.family import SpanAnswering
from litebert.tasks.squad.read import GoldAnswer, SpanExample, with_unanswerable
from litebert.tasks.squad.score import score_predictions
from litebert.tasks.squad.threshold import tuned_threshold

__all__ = [
    "DATASETS",
    "ConditionalSpanAnswering",
    "GoldAnswer",
    "Span",
    "SpanAnswer",
    "SpanAnswering",
    "SpanExample",
    "score_predictions",
    "tuned_threshold",
    "with_unanswerable",
]
