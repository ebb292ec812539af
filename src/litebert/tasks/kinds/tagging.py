"""Tag every word of a sentence: entities, parts of speech (Hugging Face's
run_ner.py).
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig, Splitting
from litebert.errors import LitebertError
from litebert.metrics import mark_entities, require_examples, tagging_measures
from litebert.nn import AlbertForTask, Batch, LinearHead, TaskHead
from litebert.plugins import TASK_HEADS, TASK_KINDS
from litebert.reading.tables import Row
from litebert.reading.words import are_entities
from litebert.tasks.kinds.family import Family, Feature, Output
from litebert.tasks.kinds.splitting import (
    Span,
    divide,
    has_undivided,
    spans_of,
    splitting_of,
    tag_words,
)
from litebert.tasks.kinds.text_heads import CLASSIFIER
from litebert.tasks.tables.cells import has_list, label_of, list_of, text_of
from litebert.tasks.tables.columns import Role
from litebert.tasks.tables.guess import ColumnGuess
from litebert.tasks.tables.rows import (
    RowReading,
    TrainingRows,
    first_number,
    in_order,
    members_of,
    require_labels,
    sort_labels,
)
from litebert.tasks.tables.table import SAMPLE_ROWS
from litebert.tokenizer import Tokenizer

IGNORED = -100
"""The target of tokens without a tag: [CLS], [SEP], and all but the first piece of each
word.
"""


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
class TokenClassification(Family[TagExample, TagAnswer]):
    """One answer per word, predicted at the word's first piece.

    A sentence that is too long is split into several sequences between words, so that
    every word gets a tag; only a single word longer than `max_length` loses its last
    pieces.
    """

    heads: ClassVar[tuple[str, ...]] = ("token-classification",)
    verb: ClassVar[str] = "tag"
    refusal: ClassVar[str] = ""
    baseline: ClassVar[str] = "the most common tag"

    @property
    def key_measure(self) -> str:  # type: ignore[override]
        """F1 of entities if the tags mark entities, otherwise the share of right
        tags.
        """
        return "f1" if mark_entities(self.head.labels) else "accuracy"

    def features(
        self,
        examples: Sequence[TagExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        training: bool,
    ) -> list[Feature]:
        """Frame [CLS] words [SEP]; the weight is the number of words, so that all words
        count equally.

        Targets have one entry per token. Without labels, the entry is 0 at the first
        piece of each word.
        """
        # for each example, the ids of the pieces of each word
        encoded = encode_words(tokenizer, [example.words for example in examples])
        features = list[Feature]()
        room = max_length - 2  # beside [CLS] and [SEP]
        for number, (example, words) in enumerate(zip(examples, encoded, strict=True)):
            tags = example.tags if training else (0,) * len(example.words)
            assert tags is not None, "examples for training have tags"
            for run in runs([len(pieces) for pieces in words], room=room):
                inner = list(chain.from_iterable(words[run]))[:room]
                ids = [tokenizer.cls_id, *inner, tokenizer.sep_id]
                segments = [0] * len(ids)
                target = _at_first_pieces(tags[run], words[run], len(ids))
                num_words = float(len(words[run]))
                features.append(Feature((ids,), (segments,), target, number, num_words))
        return features

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the cross entropy of each sequence, summed over its words."""
        logits = network(batch)  # (tokens, labels)
        by_token = F.cross_entropy(
            logits, targets, ignore_index=IGNORED, reduction="none"
        )
        by_sequence = torch.split(by_token, list(batch.lengths))
        return torch.stack([losses.sum() for losses in by_sequence])

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the logits of each sequence, of shape (tokens, labels)."""
        logits = network(batch).float().cpu()
        return [part.numpy() for part in torch.split(logits, list(batch.lengths))]

    def answer(
        self, _: TagExample, features: Sequence[Feature], outputs: Sequence[Output], /
    ) -> TagAnswer:
        """Turn the logits at first pieces into probabilities, word by word."""
        # a sentence without words has no other part
        parts = [np.zeros((0, self.head.num_outputs), dtype=np.float32)]
        for feature, output in zip(features, outputs, strict=True):
            target = feature.target
            assert target is not None, "targets mark the first piece of each word"
            parts.append(output[target != IGNORED])
        logits = torch.from_numpy(np.concatenate(parts)).double()  # (words, labels)
        return TagAnswer(logits.softmax(-1).numpy())

    def measures(
        self, examples: Sequence[TagExample], answers: Sequence[TagAnswer], /
    ) -> dict[str, float]:
        """Compare whole entities (precision, recall, F1) and single tags (accuracy)."""
        require_examples(sum(example.tags is not None for example in examples))
        return tagging_measures(
            [*map(self.labels, examples)],
            [self._tag_names(answer.best) for answer in answers],
            self.head.labels,
        )

    def averaged(self, answers: Sequence[TagAnswer], /) -> TagAnswer:
        chances = [answer.probabilities for answer in answers]
        return TagAnswer(np.mean(chances, axis=0))

    def constant(
        self, training: Sequence[TagExample], examples: Sequence[TagExample], /
    ) -> list[TagAnswer]:
        """Return, for every word, the share of each tag in training."""
        tags = list[int]()
        for example in training:
            tags += example.tags or ()
        counts = np.bincount(tags, minlength=self.head.num_outputs)
        shares = counts / max(len(tags), 1)  # (tags,)
        answers = list[TagAnswer]()
        for example in examples:
            # the same for every word: (words, tags)
            answers.append(TagAnswer(np.tile(shares, (len(example.words), 1))))
        return answers

    def texts(self, example: TagExample, /) -> tuple[str, ...]:
        return (" ".join(example.words),)

    def expected(self, example: TagExample, /) -> str | None:
        return None if example.tags is None else " ".join(self.labels(example))

    def in_words(
        self, example: TagExample, answer: TagAnswer, /
    ) -> tuple[str, float | None, float | None]:
        """Return the tags, the mean of their probabilities, and the share of right
        ones.
        """
        words = " ".join(self._tag_names(answer.best))
        if not example.words:
            return words, None, None
        confidence = float(answer.probabilities.max(axis=1).mean())
        score = None
        if example.tags is not None:
            is_right = np.array(example.tags) == np.array(answer.best)  # (words,)
            score = float(is_right.mean())
        return words, confidence, score

    def labels(self, example: TagExample, /) -> tuple[str, ...]:
        return self._tag_names(example.tags or ())

    def _tag_names(self, tags: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.head.labels[tag] for tag in tags)


def encode_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]
) -> list[list[list[int]]]:
    """Return the ids of each word of each sentence, encoded with spaces between words.

    Words are not encoded one by one: because of rules that depend on neighbors
    (numbers with commas, combining accents), the ids would differ from those of the
    same sentence as plain text. A piece belongs to the word in which its characters
    begin. A word that is normalized to nothing, such as a lone control character, gets
    the unknown piece, because it needs a tag, too.
    """
    ids_of_sentences = list[list[list[int]]]()
    encodings = tokenizer.encode_batch([" ".join(words) for words in sentences])
    for words, encoding in zip(sentences, encodings, strict=True):
        # where each word begins, in characters
        sizes = [len(word) + 1 for word in words]
        starts = list(accumulate(sizes[:-1], initial=0))
        ids_of_words: list[list[int]] = [[] for _ in words]
        for id_, (begin, _) in zip(encoding.ids, encoding.offsets, strict=True):
            word = bisect_right(starts, begin) - 1
            ids_of_words[word].append(id_)
        ids_of_sentences.append([ids or [tokenizer.unk_id] for ids in ids_of_words])
    return ids_of_sentences


def _at_first_pieces(
    tags: Sequence[int], words: Sequence[Sequence[int]], length: int
) -> NDArray[np.int64]:
    """Return the targets of a sequence, (length,): the tag of each word at its first
    piece, and IGNORED elsewhere.
    """
    # where each word begins, after [CLS]
    sizes = [len(pieces) for pieces in words]
    firsts = list(accumulate(sizes[:-1], initial=1))
    target = np.full(length, IGNORED, dtype=np.int64)
    target[firsts] = tags
    return target


def runs(sizes: Sequence[int], *, room: int) -> Iterator[slice]:
    """Split words, given their sizes in pieces, into runs that fit; a word that is too
    long is a run of its own.
    """
    start = 0
    used = 0
    for word, size in enumerate(sizes):
        if used + size > room and word > start:
            yield slice(start, word)
            start = word
            used = 0
        used += size
    if sizes:
        yield slice(start, len(sizes))


# ---- a user's own sentences ----------------------------------------------------------


class WordRows(RowReading[TagExample, TagAnswer]):
    """Sentences with a tag for each word: lists, or texts with a space between
    words.
    """

    what: ClassVar[str] = "words"
    roles: ClassVar[tuple[Role, ...]] = ("tokens", "tags", "sentence", "id")
    learned: ClassVar[tuple[Role, ...]] = ("tags",)

    @classmethod
    def are_like(cls, guess: ColumnGuess) -> bool:
        if _span_column(guess) or _entity_column(guess):
            return True
        tokens = guess.usual("tokens")
        if not tokens:
            return False
        return bool(guess.usual("tags")) or has_list(guess.cells(tokens[0]))

    @classmethod
    def guess(cls, guess: ColumnGuess) -> None:
        spans = _span_column(guess)
        if spans is not None and not guess.assigned.get("tags"):
            guess.assigned["tags"] = (spans,)
        if spans is not None and not guess.assigned.get("tokens"):
            guess.assigned["tokens"] = guess.usual("text")
            if not guess.assigned["tokens"]:
                guess.require_one("tokens", guess.texts())
        elif not guess.assigned.get("tokens") and _entity_column(guess):
            guess.assigned["tokens"] = guess.usual("tokens") or guess.usual("text")
        guess.find_usual(("tokens", "tags", "id"))
        if not guess.assigned["tokens"]:
            guess.require_one("tokens", [])

    @classmethod
    def settle(cls, training: TrainingRows) -> tuple[Self, str]:
        columns = training.columns
        name = columns.all("tags")[0]
        cells = [row.get(name) for row in islice(training.rows(), SAMPLE_ROWS)]
        if _are_spans(cells):
            return cls._settle_spans(training)
        tags = set[str | None]()
        sentences = list[list[str]]()
        for row in training.rows():
            tags.update(label_of(tag) for tag in members_of(columns.cell(row, "tags")))
            if len(sentences) < SAMPLE_ROWS:
                sentences.append(_words_in(columns.cell(row, "tokens")))
        labels = in_order(sort_labels(tags), training.labels, training.file)
        require_labels(labels, training.file, name, role="tags")
        note = f"{len(labels)} tags: {', '.join(labels)}"
        if all(label.isdecimal() for label in labels):
            note += "; their names: --label-names O,B-PER,I-PER,..."
        splitting = splitting_of(sentences)
        if splitting != "words":
            note += f"; `tag` divides a text {_DIVISIONS[splitting]}"
        first = first_number({tag for tag in tags if tag is not None}, labels)
        return cls(columns, "token-classification", labels, splitting, first), note

    @classmethod
    def _settle_spans(cls, training: TrainingRows) -> tuple[Self, str]:
        """Settle a table of texts with entities by character."""
        columns = training.columns
        # first, how the texts are divided, and which entities they have
        kinds = set[str]()
        num_unspaced = 0  # characters in texts that write no spaces between words
        num_letters = 0
        for row in training.rows():
            text = text_of(columns.cell(row, "tokens")) or ""
            kinds.update(span.label for span in _spans_in(columns.cell(row, "tags")))
            num_letters += len(text)
            if has_undivided(text, "words"):
                num_unspaced += len(text)
        splitting: Splitting = "words"
        if num_unspaced * 2 > num_letters:
            splitting = "ideographs"
        tags = ["O"]
        for kind in kinds:
            tags += [f"B-{kind}", f"I-{kind}"]

        # then, which entities are not whole words
        num_inside = 0
        num_dropped = 0
        for row in training.rows():
            text = text_of(columns.cell(row, "tokens")) or ""
            tagged = tag_words(text, _spans_in(columns.cell(row, "tags")), splitting)
            num_inside += tagged.num_inside
            num_dropped += tagged.num_dropped
        labels = in_order(sort_labels(tags), training.labels, training.file)
        require_labels(labels, training.file, columns.all("tags")[0], fewest=3)
        note = f"entities by character: {', '.join(sorted(kinds))}"
        if num_inside:
            note += (
                f"; warning: the whole word is tagged: {num_inside:,} end inside of one"
            )
        if num_dropped:
            note += f"; warning: left out: {num_dropped:,} without a word, or in a longer one"
        return cls(columns, "token-classification", labels, splitting), note

    @cached_property
    def family(self) -> TokenClassification:
        head = HeadConfig(
            kind="token-classification",
            labels=self.labels,
            splitting=self.splitting,
        )
        return TokenClassification(head)

    def example(self, id: str, row: Row, place: str, *, is_labeled: bool) -> TagExample:
        cell = self.columns.cell(row, "tokens")
        tag_cell = self.columns.cell(row, "tags")
        if not is_labeled:
            return TagExample(id, self._unlabeled_words(cell, tag_cell))
        words = _words_in(cell)
        tags: Sequence[str | None] = list(map(label_of, members_of(tag_cell)))
        spans = spans_of(tag_cell) if isinstance(cell, str) else None
        if spans is not None:  # entities by character
            text = text_of(cell) or ""
            for span in spans:
                _require_inside(span, text, place)
            words, tags, _, _ = tag_words(text, spans, self.splitting)
        if len(tags) != len(words):
            name = self.columns.all("tags")[0]
            raise LitebertError(
                "LB-863",
                f"{place}: there is not one tag for each word",
                received=f"{len(words)} words, {len(tags)} tags in column {name}",
                next="correct this row",
            )
        labels = tuple(self.label_index(tag, place) for tag in tags)
        return TagExample(id, tuple(words), labels)

    def _unlabeled_words(self, cell: object, tag_cell: object) -> tuple[str, ...]:
        """Return the words to be tagged, from a list or from a text."""
        if not self._is_plain_text(cell, tag_cell):
            return tuple(_words_in(cell))
        text = text_of(cell) or ""
        return tuple(text[start:end] for start, end in divide(text, self.splitting))

    @staticmethod
    def _is_plain_text(cell: object, tag_cell: object) -> bool:
        """Return whether a cell is a text, and not words with spaces between, of which
        each has a tag.
        """
        if not isinstance(cell, str) or list_of(cell) is not None:
            return False
        tags = [] if spans_of(tag_cell) is not None else members_of(tag_cell)
        return len(tags) != len(cell.split()) or not tags


_DIVISIONS: Mapping[Splitting, str] = {
    "words": "into words and marks",
    "spaces": "at spaces",
    "ideographs": "into words and, of a script without spaces, characters",
    "characters": "into characters",
}


def _words_in(cell: object) -> list[str]:
    return [text_of(word) or "" for word in members_of(cell)]


def _spans_in(cell: object) -> list[Span]:
    return spans_of(cell) or []


def _span_column(guess: ColumnGuess) -> str | None:
    """Return the column of entities by character: the chosen one of tags, if it is one,
    or the first that is.
    """
    names = guess.assigned.get("tags") or guess.names
    return next((name for name in names if _are_spans(guess.cells(name))), None)


def _entity_column(guess: ColumnGuess) -> bool:
    """Return whether cells of the column of tags have a mark of an entity or O for each
    word, with spaces between.
    """
    tags = list[str]()
    for name in guess.usual("tags"):
        for cell in guess.cells(name):
            tags += (text_of(cell) or "").split()
    return are_entities(tags)


def _are_spans(cells: Sequence[object]) -> bool:
    """Return whether all cells have entities by character, and one is not empty."""
    spans = [spans_of(cell) for cell in cells if text_of(cell) or cell]
    return any(spans) and None not in spans


def _require_inside(span: Span, text: str, place: str) -> None:
    if not 0 <= span.start < span.end <= len(text):
        raise LitebertError(
            "LB-868",
            f"{place}: an entity is not in its text",
            received=f"{span.label} from {span.start:,} to {span.end:,}",
            expected=f"characters of a text of {len(text):,}, the end not included",
            next="correct its start and end",
        )


# ---- the record ----------------------------------------------------------------------

TokenClassification.reading = WordRows
TASK_HEADS.add(
    "token-classification",
    TaskHead(
        make=LinearHead,
        has_labels=True,
        purpose="tags words",
        pipeline="token-classification",
        class_name="TokenClassification",
        is_in_transformers=True,
        layers={"dense": "classifier"},
        variable=CLASSIFIER,
    ),
)
TASK_KINDS.add("token-classification", TokenClassification)
