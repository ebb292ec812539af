"""Texts to compare outputs on: a few of our own, or the lines of a file, as padded batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.files import read_capped
from litebert.interop.export.padded import INPUTS, PaddedNetwork
from litebert.tasks.kinds.family import frame_ids
from litebert.tokenizer import Tokenizer

Inputs: TypeAlias = dict[str, NDArray[np.int64]]
Text: TypeAlias = tuple[str, str | None]

ROWS_AT_ONCE = 8
NUM_CHOICES = 4
_LIMIT = 16 << 20
OUR_TEXTS: tuple[Text, ...] = (
    ("Where did the boat come from?", "The boat had come down the river from the old mill."),
    ("Who opened the door?", "Nobody answered, so Clara opened the door herself and went in."),
    ("When does the market close?", "The market closes at six, but on Friday it stays open late."),
    (
        "What did the committee decide?",
        "After two hours the committee decided to postpone the vote until the auditors had "
        "finished their report on the costs of the new bridge.",
    ),
    ("How many people live there?", "About 3,400 people live in the village, most of them farmers."),
    ("It rained all night.", "In the morning the cellar was full of water."),
    ("The film is far too long.", "Even so, its last half hour is among the best of the year."),
    ("She plays the cello.", "Her brother, who is younger, plays nothing at all."),
    (
        "Why is bread left to rise?",
        "Yeast turns part of the sugar in the dough into gas; the gas makes the dough rise, and "
        "a long rise gives the bread its taste.",
    ),
    ("What is a prime number?", "A whole number above one that only one and itself divide."),
    ("Who wrote the letter?", "The letter was signed by the mayor, but her secretary wrote it."),
    ("The train was late.", "We missed the ferry and had to spend the night on the quay."),
)


def read_texts(path: Path) -> tuple[Text, ...]:
    """Read one text per line, or two with a tab between them.

    Raises:
        LitebertError: LB-753, there is no text in the file.
    """
    data = read_capped(path, _LIMIT, command=f"ls -l {path}")
    lines = data.decode("utf-8", "replace").splitlines()
    texts = tuple(_text(line) for line in lines if line.strip())
    if not texts:
        raise LitebertError(
            "LB-753",
            f"{path} has no texts to compare on",
            received=f"{len(lines)} empty lines",
            expected="one text per line, or two with a tab between them",
            next="omit --texts to compare on a few built-in sentences",
        )
    return texts


def padded_batches(texts: Sequence[Text], tokenizer: Tokenizer, network: PaddedNetwork) -> Iterator[Inputs]:
    """Yield texts as padded batches: rows, or questions with their choices."""
    lengths, has_choices = network.lengths, "choices" in network.axes
    framed = [_framed(text, tokenizer, longest=lengths[-1]) for text in texts]
    for begin in range(0, len(framed), ROWS_AT_ONCE):
        rows = framed[begin : begin + ROWS_AT_ONCE]
        choices = min(NUM_CHOICES, len(rows))
        if has_choices:
            rows = rows[: len(rows) // choices * choices]
        rectangle = _rectangle(rows, tokenizer.pad_id, at_least=lengths[0])
        shape = (-1, choices) if has_choices else (-1,)
        yield {name: values.reshape(*shape, values.shape[-1]) for name, values in rectangle.items()}


def _text(line: str) -> Text:
    first, tab, second = line.partition("\t")
    return first, second if tab else None


def _framed(text: Text, tokenizer: Tokenizer, *, longest: int) -> tuple[list[int], list[int]]:
    first, second = (None if part is None else tokenizer.encode(part).ids for part in text)
    assert first is not None
    return frame_ids(tokenizer, first, second, max_length=longest)


def _rectangle(rows: Sequence[tuple[list[int], list[int]]], pad_id: int, *, at_least: int) -> Inputs:
    width = max(at_least, *(len(ids) for ids, _ in rows))
    shape = (len(rows), width)
    ids, mask, segments = np.full(shape, pad_id), np.zeros(shape, int), np.zeros(shape, int)
    for row, (tokens, types) in enumerate(rows):
        ids[row, : len(tokens)], segments[row, : len(tokens)] = tokens, types
        mask[row, : len(tokens)] = 1
    return dict(zip(INPUTS, (ids, mask, segments), strict=True))
