"""What a fine-tuned head answers, on strings: classify, tag, choose, answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from litebert.answers import Choice, Classification, Results, SpanFound, Tagged
from litebert.fast.exits import require_exits
from litebert.nn import AlbertForTask
from litebert.tasks.finetuning import answer as answers_of
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.spans import SPAN_FAMILIES, ConditionalSpanAnswering, SpanAnswer, SpanAnswering, SpanExample
from litebert.tasks.kinds.tagging import TagExample, TokenClassification
from litebert.tasks.kinds.text import TextClassification, TextExample
from litebert.tokenizer import Tokenizer

WINDOWS_AT_ONCE = 256
"""Windows that are held in memory together; a context of 33,000 tokens has about as many."""

_WORD = re.compile(r"\w+(?:[-'’.,]\w+)*|[^\w\s]")


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
    family = replace(TextClassification.of(network.head_config), patience=patience)
    seconds = pairs if pairs is not None else [None] * len(texts)
    examples = [TextExample(str(n), a, b) for n, (a, b) in enumerate(zip(texts, seconds, strict=True))]
    features = family.features(examples, tokenizer, max_length=network.config.max_position_embeddings, training=False)
    return [
        Classification(labels=family.named(scores), values=dict(zip(family.head.labels, scores.values, strict=True)))
        for scores in answers_of(network, family, examples, features)
    ]


def tag(network: AlbertForTask, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Results[Tagged]]:
    """Return every word of each text with its tag; punctuation beside a word is a word of its own."""
    family = TokenClassification(network.head_config)
    words = [list(_WORD.finditer(text)) for text in texts]
    examples = [TagExample(str(n), tuple(word.group() for word in found)) for n, found in enumerate(words)]
    features = family.features(examples, tokenizer, max_length=network.config.max_position_embeddings, training=False)
    answers = answers_of(network, family, examples, features)
    return [
        Results(
            Tagged(word.group(), family.head.labels[label], *word.span())
            for word, label in zip(of_text, answer.best, strict=True)
        )
        for of_text, answer in zip(words, answers, strict=True)
    ]


def choose(
    network: AlbertForTask, tokenizer: Tokenizer, asked: Sequence[tuple[str, Sequence[str], str]]
) -> list[Choice]:
    """Return which choice answers each question; what is asked is (question, choices, context)."""
    family = MultipleChoice(num_choices=max(len(choices) for _, choices, _ in asked))
    examples = [ChoiceExample(str(n), context, question, tuple(of)) for n, (question, of, context) in enumerate(asked)]
    features = family.features(examples, tokenizer, max_length=network.config.max_position_embeddings, training=False)
    return [
        Choice(scores.best, example.choices[scores.best], scores.values)
        for example, scores in zip(examples, answers_of(network, family, examples, features), strict=True)
    ]


def answer(
    network: AlbertForTask,
    tokenizer: Tokenizer,
    asked: Sequence[tuple[str, Sequence[str]]],
    *,
    top: int,
    progress: Callable[[int], None] | None = None,
) -> list[Results[SpanFound]]:
    """Return the likeliest spans of all contexts of each question; what is asked is (question, contexts).

    A context of any length is read in overlapping windows, `WINDOWS_AT_ONCE` of which are held in memory together.
    """
    family = SPAN_FAMILIES[network.head_config.kind]
    examples = [SpanExample("", question, context) for question, contexts in asked for context in contexts]
    parts: list[list[SpanAnswer]] = [[] for _ in examples]
    windows = family.windows(examples, tokenizer, max_length=network.config.max_position_embeddings)
    while group := list(islice(windows, WINDOWS_AT_ONCE)):
        answers = answers_of(network, family, examples, group, progress=progress)
        for number in {window.example for window in group}:
            parts[number].append(answers[number])
    found = (family.merged(answers) for answers in parts)
    return [_likeliest(family, list(islice(found, len(contexts))), top) for _, contexts in asked]


def _likeliest(family: SpanAnswering, found: Sequence[SpanAnswer], top: int) -> Results[SpanFound]:
    """Return the likeliest spans of several contexts; for a SQuAD 2.0 model "no answer" is one."""
    nothing = None  # the probability that no context has an answer; contexts are taken as independent
    if isinstance(family, ConditionalSpanAnswering):
        clipped = [max(-700.0, min(each.null_score or 0.0, 700.0)) for each in found]
        empty = [1 / (1 + math.exp(-score)) for score in clipped]
        nothing, weights = math.prod(empty), [1 - each for each in empty]
    else:  # the share of each context: the softmax of the scores of their best spans
        best = [max((s.score for s in each.n_best if s.stop > s.start), default=-math.inf) for each in found]
        highest = max(best, default=0.0)
        powers = [math.exp(score - highest) if score > -math.inf else 0.0 for score in best]
        weights = [each / (sum(powers) or 1.0) for each in powers]
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
