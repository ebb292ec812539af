"""Texts with the vectors that a teacher made of them, once and for all.

`vectors.npy` has a row for each text of `vectors.txt` (a text a line) or of
`vectors.jsonl` (its `text`), in the same order; blank lines have no row. A folder may
hold many such pairs.
`litebert embed TEXTS --output vectors.npy` writes rows like these, and so can any other
program, for a teacher that litebert cannot read.

Neither texts nor vectors are held in memory: only where each text begins.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from litebert import rng
from litebert.errors import DamagedError, LitebertError
from litebert.files import hash_file, parse_json
from litebert.objectives.loading import Loader
from litebert.objectives.sequences import (
    MaskedSequence,
    PretrainingBatch,
    Vectors,
    collate,
)
from litebert.rng import Ints
from litebert.runs import is_run
from litebert.tokenizer import Tokenizer

TEXT_SUFFIXES = (".txt", ".jsonl")
# at most one text in so many is held out
HELD_OUT_ONE_IN = 20
# rows whose directions are measured: many for each of at most some thousand dimensions
SAMPLED_ROWS = 50_000


# ---- the files -----------------------------------------------------------------------


def holds_vectors(teacher: str | Path | None) -> bool:
    """Return whether a teacher is a file of vectors, or a folder of such files; a run
    is a network, even if it has learned from vectors and keeps its axes.
    """
    if teacher is None or is_run(Path(teacher)):
        return False
    return bool(vector_files(teacher))


def vector_files(location: str | Path) -> list[Path]:
    """Return the files that hold the vectors, in the order of their names."""
    path = Path(location)
    return [path] if path.suffix == ".npy" else sorted(path.glob("*.npy"))


def vector_width(location: str | Path) -> int:
    """Return how many numbers a vector of the first file has."""
    return int(_map_vectors(vector_files(location)[0]).shape[1])


@dataclass(frozen=True)
class VectorShard:
    """The vectors of a file, and where its texts begin."""

    vectors: Vectors  # (texts, width), mapped
    texts: Path
    lines: Ints  # (texts,), the line of each text, from 0
    begins: Ints  # (lines + 1,), in bytes

    @classmethod
    def open(cls, path: Path) -> "VectorShard":
        """Map the vectors and find the texts beside them, which must be as many."""
        vectors = _map_vectors(path)
        _require_finite(vectors, path)
        texts = _texts_beside(path)
        sizes = [0]  # in bytes, of each line
        lines = list[int]()
        with texts.open("rb") as file:
            for number, line in enumerate(file, 1):
                sizes.append(len(line))
                if _is_blank(line):  # `embed` writes no vector for it, either
                    continue
                _text_of(line, texts, number)  # raises if it has none
                lines.append(number - 1)
        num_texts = len(lines)
        if num_texts != len(vectors):
            raise LitebertError(
                "LB-561",
                f"{path} does not have a vector for each text of {texts.name}",
                received=f"{len(vectors):,} vectors and {num_texts:,} texts",
                next=f"litebert embed {texts} --output {path} --force",
            )
        return cls(vectors, texts, np.array(lines, np.int64), np.cumsum(sizes))

    def text(self, row: int) -> str:
        """Return a text, read from its file."""
        index = int(self.lines[row])
        begin, end = self.begins[index : index + 2].tolist()
        with self.texts.open("rb") as file:
            file.seek(begin)
            line = file.read(end - begin)
        return _text_of(line, self.texts, index + 1)


_ROWS_AT_ONCE = 16_384  # when all numbers of a file are looked at

# What numpy raises for a damaged header, which it reads as a Python literal
_NOT_AN_ARRAY = (
    ValueError,
    EOFError,
    OverflowError,
    TypeError,
    IndexError,
    TokenError,
)


def _map_vectors(path: Path) -> Vectors:
    """Map the array of a file, (texts, width), in float16 or float32."""
    advice = f"write {path} again, as float16 or float32 with a row for each text"
    try:
        # unlike np.load, it opens no archive (.npz) under this name
        vectors: Vectors = open_memmap(path, mode="r")
    except _NOT_AN_ARRAY as error:
        raise DamagedError(
            "LB-562", f"{path} is not a complete array", received=error, next=advice
        ) from error
    if vectors.ndim != 2 or vectors.dtype not in (np.float16, np.float32):
        raise LitebertError(
            "LB-563",
            f"{path} does not hold vectors",
            received=f"{vectors.dtype} of shape {vectors.shape}",
            expected="float16 or float32 of shape (texts, width)",
            next=advice,
        )
    return vectors


def _require_finite(vectors: Vectors, path: Path) -> None:
    """Raise LB-563 for NaN and infinity, which would end a training hours later."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        block = vectors[start : start + _ROWS_AT_ONCE]
        is_damaged = ~np.isfinite(block).all(axis=1)  # (rows,)
        if is_damaged.any():
            row = start + int(is_damaged.argmax()) + 1
            raise LitebertError(
                "LB-563",
                f"{path} does not hold vectors",
                received=f"NaN or infinity in vector {row:,}",
                expected="finite numbers",
                next=f"write {path} again; float16 holds numbers up to 65,504",
            )


def _texts_beside(path: Path) -> Path:
    """Return the one file of texts beside a file of vectors."""
    candidates = [path.with_suffix(suffix) for suffix in TEXT_SUFFIXES]
    present = [texts for texts in candidates if texts.is_file()]
    if len(present) != 1:
        raise LitebertError(
            "LB-560",
            f"the texts of the vectors in {path} must be in one file beside it",
            received=" and ".join(map(str, present)) or "none",
            expected=" or ".join(texts.name for texts in candidates),
            next=f"put the texts into {candidates[0]}, one a line",
        )
    return present[0]


def _is_blank(line: bytes) -> bool:
    return not line.decode("utf-8", "replace").strip()


def _text_of(line: bytes, texts: Path, number: int) -> str:
    """Return the text of a line; in a JSON Lines file, its `text`."""
    try:
        content = line.decode("utf-8")
        if texts.suffix == ".txt":
            return content.rstrip("\r\n")
        row: Any = parse_json(content)
        text = row["text"]
        if not isinstance(text, str | int | float):  # `embed` reads numbers, too
            raise TypeError(f"{type(text).__name__} instead of a text")
        return str(text)
    except (ValueError, TypeError, KeyError) as error:
        expected = "UTF-8"
        if texts.suffix != ".txt":
            expected = '{"text": "..."} in UTF-8'
        raise LitebertError(
            "LB-564",
            f"line {number:,} of {texts} has no text",
            received=f"{type(error).__name__}: {error}",
            expected=expected,
            next=f"correct line {number:,} of {texts}, or remove {texts} and its"
            " vectors",
        ) from error


# ---- all shards as one list of texts -------------------------------------------------


class TaughtTexts:
    """The texts of all shards with their vectors, numbered from 0 across all of
    them.

    The last ones are held out: at most `num_held_out`, and one in twenty.
    """

    def __init__(self, location: str | Path, *, num_held_out: int) -> None:
        self.files = vector_files(location)
        self.shards = [VectorShard.open(file) for file in self.files]
        self.width = self.shards[0].vectors.shape[1]
        counts = [len(shard.vectors) for shard in self.shards]  # texts
        # the number of the first text of each shard, then that of all, (shards + 1,)
        self._firsts = np.cumsum([0, *counts])
        total = sum(counts)
        self.num_held_out = min(num_held_out, total // HELD_OUT_ONE_IN)
        self.num_training = total - self.num_held_out
        self._require_one_width(location)

    def _require_one_width(self, location: str | Path) -> None:
        """Raise LB-565 unless all vectors have one width and some can be held out."""
        widths = sorted({shard.vectors.shape[1] for shard in self.shards})
        if len(widths) == 1 and self.num_held_out > 0:
            return
        total = self.num_training + self.num_held_out
        raise LitebertError(
            "LB-565",
            f"the vectors in {location} cannot teach together",
            received=f"{total:,} vectors of the widths {', '.join(map(str, widths))}",
            expected=f"{HELD_OUT_ONE_IN} or more vectors of one width",
            next=f"litebert embed TEXTS --output {self.files[0]} --force",
        )

    @property
    def hash(self) -> str:
        """The hash of all texts and vectors, by which a resumed run knows them."""
        # Of the files, byte by byte: another order of the texts is another run.
        digest = hashlib.blake2b(digest_size=32)
        for file, shard in zip(self.files, self.shards, strict=True):
            digest.update(hash_file(file).encode())
            digest.update(hash_file(shard.texts).encode())
        return digest.hexdigest()

    def row(self, number: int) -> tuple[str, Vectors]:
        """Return a text and its vector, (width,)."""
        # the last shard that begins at or before this number
        place = int(np.searchsorted(self._firsts, number, side="right")) - 1
        shard = self.shards[place]
        row = number - int(self._firsts[place])
        return shard.text(row), shard.vectors[row]

    def axes(self, size: int) -> NDArray[np.float32]:
        """Return the `size` directions in which the vectors are largest, (width, size).

        A student of that size learns the vectors in these directions. They are ordered,
        so that the first n numbers of a vector are the best n. Vectors of just that
        width are learned as they are: here, the directions are the unit vectors.
        """
        if size == self.width:
            return np.eye(size, dtype=np.float32)
        # The second moments of a sample of the training vectors, each of length 1, so
        # that long vectors do not count more; in float64, as they are sums of many.
        stride = max(1, self.num_training // SAMPLED_ROWS)
        moments = np.zeros((self.width, self.width))
        for shard, first in zip(self.shards, self._firsts.tolist(), strict=False):
            stop = max(0, self.num_training - first)  # held-out vectors come last
            rows = shard.vectors[:stop:stride].astype(np.float64)  # (rows, width)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12)
            moments += rows.T @ rows
        # eigh returns the directions as columns, those of the smallest moment first
        _, directions = np.linalg.eigh(moments)
        largest = directions[:, ::-1][:, :size]
        return largest.astype(np.float32)


class TaughtLoader(Loader):
    """The training texts in a new random order in every epoch, as unmasked sequences
    with vectors.
    """

    def __init__(
        self,
        texts: TaughtTexts,
        tokenizer: Tokenizer,
        *,
        batch_size: int,
        seed: int,
        longest: int,
    ) -> None:
        self.batch_size = batch_size
        self._texts = texts
        self._tokenizer = tokenizer
        self._seed = seed
        self._longest = longest

    def sequences(self, start: int, stop: int) -> Iterator[MaskedSequence]:
        num_texts = self._texts.num_training
        for number in range(start, stop):
            # The order follows from the number alone, so that a run can be resumed at
            # any step.
            epoch, place = divmod(number, num_texts)
            places = np.array([place])
            row = rng.permutation(self._seed, "taught-order", epoch, num_texts, places)
            yield self._sequence(int(row[0]))

    def held_out(self) -> Iterator[PretrainingBatch]:
        """Yield the held-out texts in batches."""
        first = self._texts.num_training
        stop = first + self._texts.num_held_out
        for start in range(first, stop, self.batch_size):
            numbers = range(start, min(start + self.batch_size, stop))
            yield collate(map(self._sequence, numbers))

    def _sequence(self, row: int) -> MaskedSequence:
        """Return a text as [CLS] A [SEP], with its vector and nothing to predict."""
        text, vector = self._texts.row(row)
        tokenizer = self._tokenizer
        pieces = tokenizer.encode(text).ids[: self._longest - 2]  # [CLS] and [SEP]
        ids = np.array([tokenizer.cls_id, *pieces, tokenizer.sep_id], np.int64)
        nothing = np.empty(0, np.int64)
        return MaskedSequence(ids, len(ids), None, nothing, nothing, vector)
