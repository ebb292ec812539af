"""The verbs of fine-tuned heads, on strings: classify, tag, choose, answer."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import islice

from litebert.answers import Choice, Classification, Results, SpanFound, Tagged
from litebert.config import HEADS
from litebert.errors import LitebertError, RequestError
from litebert.fast.exits import require_exits
from litebert.inference.given import require_bounded
from litebert.nn import AlbertForTask, Network
from litebert.tasks.finetuning import answer as answers_of
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.classification import TextClassification, TextExample
from litebert.tasks.kinds.spans import (
    SPAN_FAMILIES,
    ConditionalSpanAnswering,
    ProposedSpan,
    SpanAnswer,
    SpanAnswering,
    SpanExample,
)
from litebert.tasks.kinds.tagging import TagExample, TokenClassification
from litebert.tokenizer import Tokenizer

WINDOWS_AT_ONCE = 256
"""Windows that are held in memory together; a context of 33,000 tokens has about as many."""


def classify(
    network: AlbertForTask,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    *,
    patience: int | None,
) -> list[Classification]:
    """Return the label of each text, or of each text with its pair."""
    if patience is not None:
        require_exits(network, patience)
    family = TextClassification(network.head_config, patience=patience)
    seconds = pairs if pairs is not None else [None] * len(texts)
    examples = [
        TextExample(str(number), first, second)
        for number, (first, second) in enumerate(zip(texts, seconds, strict=True))
    ]
    features = family.features(examples, tokenizer, max_length=_longest(network), training=False)
    return [
        Classification(labels=family.named(scores), values=dict(zip(family.head.labels, scores.values, strict=True)))
        for scores in answers_of(network, family, examples, features)
    ]


def tag(network: AlbertForTask, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Results[Tagged]]:
    """Return every word of each text with its tag; words end at white space."""
    for text in texts:
        require_bounded(text, "tag")
    family = TokenClassification(network.head_config)
    examples = [TagExample(str(n), tuple(text.split())) for n, text in enumerate(texts)]
    features = family.features(examples, tokenizer, max_length=_longest(network), training=False)
    answers = answers_of(network, family, examples, features)
    return [
        Results(
            Tagged(word.group(), family.head.labels[number], *word.span())
            for word, number in zip(re.finditer(r"\S+", text), found.best, strict=True)
        )
        for text, found in zip(texts, answers, strict=True)
    ]


def choose(network: AlbertForTask, tokenizer: Tokenizer, question: str, choices: Sequence[str], context: str) -> Choice:
    """Return which choice answers the question about the context."""
    family = MultipleChoice(num_choices=len(choices))
    examples = [ChoiceExample("0", context, question, tuple(choices))]
    features = family.features(examples, tokenizer, max_length=_longest(network), training=False)
    (scores,) = answers_of(network, family, examples, features)
    return Choice(scores.best, choices[scores.best], scores.values)


def answer(
    network: AlbertForTask, tokenizer: Tokenizer, question: str, contexts: Sequence[str], *, top: int
) -> Results[SpanFound]:
    """Return the likeliest spans of all contexts; for a SQuAD 2.0 model "no answer" is one.

    A context of any length is read in overlapping windows.
    """
    family = SPAN_FAMILIES[network.head_config.kind]
    examples = [SpanExample(str(n), question, context) for n, context in enumerate(contexts)]
    found = _span_answers(network, family, tokenizer, examples)
    empty = [_sigmoid(each.null_score) for each in found if each.null_score is not None]
    # "No answer" means that no context has one; contexts are taken as independent.
    nothing = math.prod(empty) if isinstance(family, ConditionalSpanAnswering) else None
    weights = [1 - each for each in empty] or _shares([_best_score(each.n_best) for each in found])
    scale = 1.0 if nothing is None else (1 - nothing) / (sum(weights) or 1.0)
    spans = [
        SpanFound(span.text, span.start, span.stop, weight * scale * span.probability, document, nothing)
        for document, (answer, weight) in enumerate(zip(found, weights, strict=True))
        for span in answer.n_best
        if span.stop > span.start
    ]
    if nothing is not None:
        spans.append(SpanFound("", 0, 0, nothing, 0, nothing))
    return Results(sorted(spans, key=lambda span: -span.probability)[:top])


def _span_answers(
    network: AlbertForTask, family: SpanAnswering, tokenizer: Tokenizer, examples: Sequence[SpanExample]
) -> list[SpanAnswer]:
    """Answer questions, WINDOWS_AT_ONCE windows at a time: a context may have any length."""
    parts: list[list[SpanAnswer]] = [[] for _ in examples]
    windows = family.windows(examples, tokenizer, max_length=_longest(network))
    while group := list(islice(windows, WINDOWS_AT_ONCE)):
        answers = answers_of(network, family, examples, group)
        for number in {window.example for window in group}:
            parts[number].append(answers[number])
    return [family.merged(answers) for answers in parts]


def _best_score(spans: Sequence[ProposedSpan]) -> float:
    return max((span.score for span in spans if span.stop > span.start), default=-math.inf)


def _shares(scores: Sequence[float]) -> list[float]:
    """Return the share of each document: the softmax of their best scores."""
    highest = max(scores, default=0.0)
    weights = [math.exp(score - highest) if score > -math.inf else 0.0 for score in scores]
    return [weight / (sum(weights) or 1.0) for weight in weights]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(-700.0, min(value, 700.0))))


def _longest(network: AlbertForTask) -> int:
    return network.config.max_position_embeddings


def head_in_words(network: Network) -> str:
    """Say which head a network has."""
    if isinstance(network, AlbertForTask):
        return f"a {network.head_config.kind} head"
    return "pretraining heads only"


def not_trained_for(verb: str, network: Network, unknown: Sequence[str], *, source: str) -> LitebertError:
    """Return the error for a verb whose head the network lacks.

    `unknown` are tensors of an unknown head: the module that adds it has not been imported.
    """
    kinds = [kind for kind, record in HEADS.items() if record.verb == verb]
    has = head_in_words(network)
    if unknown:
        has = f"a head that no imported module knows, {', '.join(unknown[:3])}"
    return RequestError(
        "LB-615",
        f"{source} cannot {verb}: it was not fine-tuned for that",
        received=has,
        expected=f"a {' or '.join(kinds)} head",
        next="import the module that adds its head before you load it, as in docs/extending/task.md"
        if unknown
        else "litebert finetune --help",
    )
