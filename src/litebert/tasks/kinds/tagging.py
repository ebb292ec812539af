"""Tag every word of a sentence: entities, parts of speech (Hugging Face's run_ner.py)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.metrics import tagging_measures
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.family import AnswerRow, CheckItem, Feature, Output
from litebert.tasks.kinds.problems import softmax
from litebert.tokenizer import Tokenizer

IGNORED = -100
"""The target of tokens without a tag: [CLS], [SEP], and all but the first piece of each word."""


@dataclass(frozen=True)
class TagExample:
    """The words of a sentence, and the index of each word's tag."""

    id: str
    words: tuple[str, ...]
    tags: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class TagAnswer:
    """The answer to one sentence: probabilities of shape (words, labels)."""

    probabilities: NDArray[np.float64]

    @property
    def best(self) -> tuple[int, ...]:
        """The index of the likeliest tag of each word."""
        return tuple(map(int, self.probabilities.argmax(axis=1)))


@dataclass(frozen=True)
class TokenClassification:
    """The family of tasks with one answer per word; see tasks.kinds.family.Family.

    The tag of a word is predicted at its first piece. A sentence that is too long is split into
    several sequences between words, so that every word gets a tag; only a single word longer than
    `max_length` loses its last pieces.
    """

    head: HeadConfig

    def features(
        self, examples: Sequence[TagExample], tokenizer: Tokenizer, *, max_length: int, training: bool
    ) -> list[Feature]:
        """Frame [CLS] words [SEP]; the weight is the number of words, so that all count equally.

        Targets have one entry per token. Without labels it is 0 at the first piece of each word.
        """
        encoded = encode_words(tokenizer, [example.words for example in examples])
        features: list[Feature] = []
        for number, (example, pieces) in enumerate(zip(examples, encoded, strict=True)):
            tags = example.tags if training else (0,) * len(example.words)
            assert tags is not None, "examples for training have tags"
            cuts = runs([len(word) for word in pieces], room=max_length - 2)
            features += [_feature(tokenizer, pieces[run], tags[run], number, max_length) for run in cuts]
        return features

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the cross entropy of each sequence, summed over its words."""
        by_token = F.cross_entropy(network(batch), targets, ignore_index=IGNORED, reduction="none")
        return torch.stack([losses.sum() for losses in _sequences(by_token, batch)])

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the logits of each sequence, of shape (tokens, labels)."""
        logits = network(batch).float().cpu()
        return [part.numpy() for part in _sequences(logits, batch)]

    def answers(
        self, examples: Sequence[TagExample], features: Sequence[Feature], outputs: Sequence[Output], /
    ) -> list[TagAnswer]:
        """Turn the logits at first pieces into probabilities, word by word."""
        none = np.zeros((0, self.head.num_outputs), dtype=np.float32)
        logits: list[list[Output]] = [[none] for _ in examples]
        for feature, output in zip(features, outputs, strict=True):
            assert feature.target is not None, "words are answered where the target says"
            logits[feature.example].append(output[feature.target != IGNORED])
        return [TagAnswer(softmax(np.concatenate(parts))) for parts in logits]

    def measures(self, examples: Sequence[TagExample], answers: Sequence[TagAnswer], /) -> dict[str, float]:
        """Compare whole entities (precision, recall, F1) and single tags (accuracy)."""
        wanted = [self._named(example.tags or ()) for example in examples]
        return tagging_measures(wanted, [self._named(answer.best) for answer in answers])

    def constant(self, training: Sequence[TagExample], examples: Sequence[TagExample], /) -> list[TagAnswer]:
        """Return the share of each training tag, for every word."""
        tags = [tag for example in training for tag in example.tags or ()]
        shares = np.bincount(tags, minlength=self.head.num_outputs) / max(len(tags), 1)
        return [TagAnswer(np.tile(shares, (len(example.words), 1))) for example in examples]

    def item(self, example: TagExample, /) -> CheckItem:
        """Return what a data check examines."""
        text, tags = " ".join(example.words), tuple(self._named(example.tags or ()))
        answer = None if example.tags is None else " ".join(tags)
        return CheckItem((text,), text, labels=tags, answer=answer)

    def rows(self, examples: Sequence[TagExample], answers: Sequence[TagAnswer], /) -> list[AnswerRow]:
        """Return tags with spaces between them; confidence and score are means over the words."""
        return [self._row(*pair) for pair in zip(examples, answers, strict=True)]

    def averaged(self, answers: Sequence[Sequence[TagAnswer]], /) -> list[TagAnswer]:
        """Return the mean probability of each tag."""
        return [
            TagAnswer(np.mean([tagged.probabilities for tagged in of_one], axis=0))
            for of_one in zip(*answers, strict=True)
        ]

    def _named(self, tags: Sequence[int]) -> list[str]:
        return [self.head.labels[tag] for tag in tags]

    def _row(self, example: TagExample, answer: TagAnswer) -> AnswerRow:
        has_words, is_labelled = bool(example.words), example.tags is not None
        tags = np.array(example.tags or (), dtype=np.int64)
        return AnswerRow(
            id=example.id,
            text=" ".join(example.words),
            expected=" ".join(self._named(example.tags or ())) if is_labelled else None,
            answer=" ".join(self._named(answer.best)),
            confidence=float(answer.probabilities.max(axis=1).mean()) if has_words else None,
            score=float((tags == answer.best).mean()) if has_words and is_labelled else None,
        )


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """Return the ids of each word of each sentence, encoded with spaces between words.

    Words are not encoded one by one: because of rules that depend on neighbours (numbers with
    commas, combining accents), the ids would differ from those of the same sentence as plain text.
    A piece belongs to the word in which its characters begin. A word that is normalised to nothing,
    such as a lone control character, gets the unknown piece, because it needs a tag, too.
    """
    encodings = tokenizer.encode_batch([" ".join(words) for words in sentences])
    return [
        _by_word(words, encoding.ids, encoding.offsets, tokenizer.unk_id)
        for words, encoding in zip(sentences, encodings, strict=True)
    ]


def runs(sizes: Sequence[int], *, room: int) -> Iterator[slice]:
    """Split words of these sizes in pieces into runs that fit; a word too long is its own run.

    >>> list(runs([1, 2, 1, 9, 1], room=3))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    start, used = 0, 0
    for word, size in enumerate(sizes):
        if used + size > room and word > start:
            yield slice(start, word)
            start, used = word, 0
        used += size
    if sizes:
        yield slice(start, len(sizes))


def _feature(
    tokenizer: Tokenizer, pieces: Sequence[list[int]], tags: Sequence[int], example: int, max_length: int
) -> Feature:
    """Frame a run of words and put each tag at the first piece of its word."""
    inner = list(chain.from_iterable(pieces))[: max_length - 2]
    ids = [tokenizer.cls_id, *inner, tokenizer.sep_id]
    target = np.full(len(ids), IGNORED, dtype=np.int64)
    target[list(accumulate(map(len, pieces[:-1]), initial=1))] = tags
    return Feature((ids,), ([0] * len(ids),), target, example, weight=float(len(pieces)))


def _sequences(by_token: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    return torch.split(by_token, list(batch.lengths))


def _by_word(
    words: Sequence[str], ids: Sequence[int], offsets: Sequence[tuple[int, int]], unknown: int
) -> list[list[int]]:
    starts = list(accumulate((len(word) + 1 for word in words[:-1]), initial=0))
    pieces: list[list[int]] = [[] for _ in words]
    for number, (begin, _) in zip(ids, offsets, strict=True):
        pieces[bisect_right(starts, begin) - 1].append(number)
    return [word or [unknown] for word in pieces]
