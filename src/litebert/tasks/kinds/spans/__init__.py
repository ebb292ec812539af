"""Question answering by spans of a text, as in SQuAD 1.1 and 2.0 (squad_utils.py)."""

from litebert.tasks.kinds.spans.answering import SpanAnswering
from litebert.tasks.kinds.spans.conditional import ConditionalSpanAnswering
from litebert.tasks.kinds.spans.decode import ProposedSpan, SpanAnswer
from litebert.tasks.kinds.spans.example import MAX_CONTEXT, GoldAnswer, SpanExample, require_bounded_context
from litebert.tasks.kinds.spans.head import ConditionalSpanHead, score_spans
from litebert.tasks.kinds.spans.threshold import tuned_threshold

SPAN_FAMILIES = {each.head.kind: each for each in (SpanAnswering(), ConditionalSpanAnswering())}
"""The families of the heads that answer with spans."""

__all__ = [
    "MAX_CONTEXT",
    "SPAN_FAMILIES",
    "ConditionalSpanAnswering",
    "ConditionalSpanHead",
    "GoldAnswer",
    "ProposedSpan",
    "SpanAnswer",
    "SpanAnswering",
    "SpanExample",
    "require_bounded_context",
    "score_spans",
    "tuned_threshold",
]
