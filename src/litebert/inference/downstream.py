"""The verbs of fine-tuned heads, on strings: classify, tag, choose, answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litebert.fast.exits import require_exits
from litebert.nn import AlbertForTask
from litebert.tasks.finetuning import answer as answers_of
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.classification import TextClassification, TextExample
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, SpanAnswering, SpanExample
from litebert.tasks.kinds.tagging import TagExample, TokenClassification
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class Classification:
    """The label of a text (several, or none, of a multi-label model) and the value of each label.

    Values are probabilities; of a regression model, the one score.
    """

    labels: tuple[str, ...]
    values: dict[str, float]


@dataclass(frozen=True)
class Tagged:
    """A word and its tag."""

    word: str
    tag: str


@dataclass(frozen=True)
class Choice:
    """The chosen one of several choices, by number and in words, and the probability of each."""

    index: int
    text: str
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class SpanFound:
    """Characters `start` to `stop` of the context; an empty text says that there is no answer."""

    text: str
    start: int
    stop: int
    probability: float


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
        Classification(
            labels=family.named(scores),
            values=dict(zip(family.head.labels, scores.values, strict=True)),
        )
        for scores in answers_of(network, family, examples, features)
    ]


def tag(network: AlbertForTask, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[Tagged]]:
    """Return every word of each text with its tag."""
    family = TokenClassification(network.head_config)
    examples = [TagExample(str(n), tuple(text.split())) for n, text in enumerate(texts)]
    features = family.features(examples, tokenizer, max_length=_longest(network), training=False)
    answers = answers_of(network, family, examples, features)
    return [
        [
            Tagged(word, family.head.labels[number])
            for word, number in zip(example.words, found.best, strict=True)
        ]
        for example, found in zip(examples, answers, strict=True)
    ]


def choose(
    network: AlbertForTask,
    tokenizer: Tokenizer,
    question: str,
    choices: Sequence[str],
    context: str,
) -> Choice:
    """Return which choice answers the question about the context."""
    family = MultipleChoice(num_choices=len(choices))
    examples = [ChoiceExample("0", context, question, tuple(choices))]
    features = family.features(examples, tokenizer, max_length=_longest(network), training=False)
    (scores,) = answers_of(network, family, examples, features)
    return Choice(scores.best, choices[scores.best], scores.values)


def answer(
    network: AlbertForTask, tokenizer: Tokenizer, question: str, context: str, *, top: int
) -> list[SpanFound]:
    """Return the likeliest spans; where the model can tell, "no answer" is one of them."""
    is_linear = network.head_config.kind == "question-answering"
    family = SpanAnswering() if is_linear else ConditionalSpanAnswering()
    examples = [SpanExample("0", question, context)]
    features = family.features(examples, tokenizer, max_length=_longest(network), training=False)
    (found,) = answers_of(network, family, examples, features)
    nothing = 0.0 if found.null_score is None else 1 / (1 + math.exp(-found.null_score))
    spans = [
        SpanFound(span.text, span.start, span.stop, (1 - nothing) * span.probability)
        for span in found.n_best
        if span.stop > span.start
    ]
    if not is_linear:
        spans.append(SpanFound("", 0, 0, nothing))
    return sorted(spans, key=lambda span: -span.probability)[:top]


def _longest(network: AlbertForTask) -> int:
    return network.config.max_position_embeddings
