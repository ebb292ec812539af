"""Question answering by spans of a text, as in SQuAD 1.1 and 2.0 (official
squad_utils.py).

In order: `windows` of a context, the `head` of 2.0, what `answers` are, the `families`
that learn and give them, and the `rows` of a user's own file.
"""

from functools import partial

from litebert.nn import LinearHead, TaskHead
from litebert.plugins import TASK_HEADS, TASK_KINDS
from litebert.tasks.kinds.spans.answers import (
    EMPTY,
    NO_SPAN,
    ProposedSpan,
    SpanAnswer,
    gold,
    spans_of,
    tune_threshold,
)
from litebert.tasks.kinds.spans.families import (
    ConditionalSpanAnswering,
    NullableSpanAnswering,
    SpanAnswering,
    answers_with_spans,
)
from litebert.tasks.kinds.spans.head import (
    ConditionalSpanHead,
    ConditionalSpans,
    score_spans,
)
from litebert.tasks.kinds.spans.rows import SpanRows, locate_answer
from litebert.tasks.kinds.spans.windows import (
    MAX_CONTEXT,
    GoldAnswer,
    SpanExample,
    SpanFeature,
    gold_answers,
    most_context,
    windows_of,
)

__all__ = [
    "EMPTY",
    "MAX_CONTEXT",
    "NO_SPAN",
    "ConditionalSpanAnswering",
    "ConditionalSpanHead",
    "ConditionalSpans",
    "GoldAnswer",
    "NullableSpanAnswering",
    "ProposedSpan",
    "SpanAnswer",
    "SpanAnswering",
    "SpanExample",
    "SpanFeature",
    "SpanRows",
    "answers_with_spans",
    "gold",
    "gold_answers",
    "locate_answer",
    "most_context",
    "score_spans",
    "spans_of",
    "tune_threshold",
    "windows_of",
]

SpanAnswering.reading = SpanRows
TASK_HEADS.add(
    "question-answering",
    TaskHead(
        make=partial(LinearHead, has_dropout=False),
        num_outputs=2,
        purpose="finds answers in a text (SQuAD 1.1)",
        pipeline="question-answering",
        class_name="QuestionAnswering",
        is_in_transformers=True,
        layers={"dense": "qa_outputs"},
        variable="cls/squad/output_weights",
        # unlike official classifiers (squad_utils.py L708)
        logits=("start_logits", "end_logits"),
    ),
)
TASK_HEADS.add(
    "conditional-question-answering",
    TaskHead(
        make=ConditionalSpanHead,
        num_outputs=1,
        purpose="finds answers in a text, or says that there is none (SQuAD 2.0)",
        pipeline="question-answering",
        class_name="ConditionalQuestionAnswering",
        # transformers has no such head: these are the official variables
        # (squad_utils.py L1230), in every family
        layers={
            "start": "start_logits.dense",
            "end_hidden": "end_logits.dense_0",
            "end_norm": "end_logits.LayerNorm",
            "end": "end_logits.dense_1",
            "answer_hidden": "answer_class.dense_0",
            "answer": "answer_class.dense_1",
        },
        variable="start_logits/dense/kernel",
    ),
)
TASK_KINDS.add("question-answering", SpanAnswering)
# no name of users' own tasks: `SpanRows` chooses it if a question has no answer
TASK_KINDS.add("conditional-question-answering", ConditionalSpanAnswering)
