"""What is computed: rectangles of made-up tokens, and batches of real texts as they arrive."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.kinds.family import frame_ids
from litebert.tokenizer import Tokenizer

DATA = Path(os.environ.get("LITEBERT_TEST_DATA", Path(__file__).parents[2] / "../shared/data"))
VOCABULARY = DATA / "tokenizer" / "spiece.model"
MAX_LENGTH = 512
Pair: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True)
class Texts:
    """One batch: ids and segments of each sequence."""

    ids: tuple[list[int], ...]
    segments: tuple[list[int], ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Real tokens of each sequence."""
        return tuple(len(ids) for ids in self.ids)

    @property
    def num_tokens(self) -> int:
        """Real tokens in all."""
        return sum(self.lengths)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Where the rectangle, as wide as the longest sequence, holds tokens."""
        return np.arange(max(self.lengths)) < np.array(self.lengths)[:, None]

    def padded(self) -> dict[str, NDArray[np.int64]]:
        """Return the rectangle under the names that transformers gives its inputs."""
        ids, segments = (np.zeros(self.mask.shape, dtype=np.int64) for _ in range(2))
        ids[self.mask] = list(itertools.chain(*self.ids))
        segments[self.mask] = list(itertools.chain(*self.segments))
        mask = self.mask.astype(np.int64)
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def rectangle(num_sequences: int, length: int, *, seed: int = 1) -> Texts:
    """Return made-up tokens, all sequences of one length."""
    ids = np.random.default_rng(seed).integers(5, 30_000, (num_sequences, length))
    return Texts(tuple(ids.tolist()), tuple([0] * length for _ in range(num_sequences)))


def arriving(corpus: str, *, num_batches: int, batch_size: int = 16, skip: int = 0) -> list[Texts]:
    """Return the first batches of a corpus after `skip` texts, in the order of its file."""
    tokenizer = Tokenizer.load(VOCABULARY)
    wanted = num_batches * batch_size
    framed = [frame(tokenizer, pair) for pair in itertools.islice(CORPORA[corpus](), skip, skip + wanted)]
    batches = [framed[first : first + batch_size] for first in range(0, wanted, batch_size)]
    return [Texts(*(tuple(column) for column in zip(*batch, strict=True))) for batch in batches]


def frame(tokenizer: Tokenizer, pair: Pair) -> tuple[list[int], list[int]]:
    """Return ids and segments of a text or a pair, cut to what the network takes."""
    first, *second = tokenizer.encode_ids([text for text in pair if text is not None])
    return frame_ids(tokenizer, first, second[0] if second else None, max_length=MAX_LENGTH)


def sst2() -> Iterator[tuple[str, int]]:
    """Yield the sentences of SST-2's training file with their labels."""
    with gzip.open(DATA / "glue/SST-2/train.tsv.gz", "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield row["sentence"], int(row["label"])


def _nli() -> Iterator[Pair]:
    for row in _json_lines(DATA / "nli/mnli_dev_matched_a.jsonl.gz"):
        yield row["premise"], row["hypothesis"]


def _imdb() -> Iterator[Pair]:
    files = (_json_lines(DATA / f"imdb/train-{side}.jsonl.gz") for side in ("neg", "pos"))
    for row in itertools.chain.from_iterable(zip(*files, strict=False)):
        yield row["text"], None


def _json_lines(path: Path) -> Iterable[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


CORPORA = {"SST-2": lambda: ((text, None) for text, _ in sst2()), "NLI": _nli, "IMDB": _imdb}
