"""What the benchmarks read: the test data (LITEBERT_TEST_DATA), made-up tokens, and
real texts as they arrive.
"""

import csv
import gzip
import io
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow
from numpy.typing import NDArray

DATA = Path(
    os.environ.get("LITEBERT_TEST_DATA", Path(__file__).parents[1] / "../shared/data")
)
VOCABULARY = DATA / "tokenizer" / "spiece.model"
MAX_LENGTH = 512


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a compressed file: JSON lines, or a table with tabs and no
    quotes (CoLA's has no heading).
    """
    with _unpacked(path) as lines:
        if ".jsonl" in path.name:
            yield from map(json.loads, lines)
            return
        names = (
            ("source", "label", "original", "sentence")
            if "CoLA" in path.parts
            else None
        )
        yield from csv.DictReader(lines, names, delimiter="\t", quoting=csv.QUOTE_NONE)


def _unpacked(path: Path) -> TextIO:
    if path.suffix == ".zst":
        unpacked = pyarrow.input_stream(path, compression="zstd")
        return io.TextIOWrapper(unpacked, encoding="utf-8")
    return gzip.open(path, "rt", encoding="utf-8")


def documents() -> Iterator[str]:
    for book in rows(DATA / "text" / "books.jsonl.gz"):
        yield from (chapter["text"] for chapter in book["chapters"])
    yield from (
        article["text"] for article in rows(DATA / "text" / "wiki_articles.jsonl.gz")
    )


def squad(part: str) -> list[list[dict[str, Any]]]:
    with gzip.open(DATA / f"squad/{part}-v1.1.json.gz", "rt", encoding="utf-8") as file:
        return [article["paragraphs"] for article in json.load(file)["data"]]


TABLES = {
    "cola": ("glue/CoLA/train.tsv.gz", ("sentence",), "label"),
    "sst2": ("glue/SST-2/train.tsv.gz", ("sentence",), "label"),
    "mrpc": ("glue/MRPC/train.tsv.gz", ("#1 String", "#2 String"), "Quality"),
    "rte": ("glue/RTE/train.tsv.gz", ("sentence1", "sentence2"), "label"),
    "stsb": ("glue/STS-B/train.tsv.gz", ("sentence1", "sentence2"), "score"),
    "sick": ("nli/SICK.txt.gz", ("sentence_A", "sentence_B"), "entailment_judgment"),
    "snli": ("nli/snli_dev.jsonl.gz", ("premise", "hypothesis"), "label"),
    "qnli": ("glue/QNLI/dev.tsv.gz", ("question", "sentence"), "label"),
}


def labeled(task: str) -> list[dict[str, str]]:
    """Return the labeled rows of a task, with `a`, `b` if it has pairs, and
    `label`.
    """
    if task == "imdb":
        reviews = []
        for side in ("neg", "pos"):
            for row in rows(DATA / f"imdb/train-{side}.jsonl.gz"):
                reviews.append({"a": row["text"], "label": side})
        return reviews
    name, texts, label = TABLES[task]
    labeled_rows = []
    for row in rows(DATA / name):
        if None in row or None in row.values():
            continue  # too many or too few tabs
        labeled_row = {"label": row[label]}
        for role, column in zip("ab", texts, strict=False):
            labeled_row[role] = row[column]
        labeled_rows.append(labeled_row)
    return labeled_rows


@dataclass(frozen=True)
class Texts:
    ids: tuple[list[int], ...]
    segments: tuple[list[int], ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(map(len, self.ids))

    @property
    def num_tokens(self) -> int:
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
        return {
            "input_ids": ids,
            "attention_mask": self.mask.astype(np.int64),
            "token_type_ids": segments,
        }


def made_up(
    lengths: Iterable[int], *, vocab_size: int = 30_000, seed: int = 1
) -> Texts:
    draw = np.random.default_rng(seed)
    ids = tuple(draw.integers(5, vocab_size, length).tolist() for length in lengths)
    return Texts(ids, tuple([0] * len(each) for each in ids))


def arriving(
    corpus: str, *, num_batches: int, batch_size: int = 16, skip: int = 0
) -> list[Texts]:
    """Return the first batches of SST-2, NLI or IMDB after `skip` texts, in the order
    of its file.
    """
    from litebert.tasks.kinds.family import frame_ids
    from litebert.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(VOCABULARY)
    count = num_batches * batch_size
    framed = []
    for texts in itertools.islice(stream(corpus), skip, skip + count):
        first, *second = tokenizer.encode_ids(texts)
        framed.append(
            frame_ids(
                tokenizer, first, second[0] if second else None, max_length=MAX_LENGTH
            )
        )
    batches = (
        framed[begin : begin + batch_size] for begin in range(0, count, batch_size)
    )
    return [
        Texts(*(tuple(column) for column in zip(*batch, strict=True)))
        for batch in batches
    ]


def sst2() -> Iterator[tuple[str, int]]:
    return (
        (row["sentence"], int(row["label"]))
        for row in rows(DATA / "glue/SST-2/train.tsv.gz")
    )


def stream(corpus: str) -> Iterator[list[str]]:
    """Yield the texts of SST-2 or IMDB (in turns of both sides), or the pairs of
    NLI.
    """
    if corpus == "SST-2":
        yield from ([text] for text, _ in sst2())
    elif corpus == "NLI":
        yield from (
            [r["premise"], r["hypothesis"]]
            for r in rows(DATA / "nli/mnli_dev_matched_a.jsonl.gz")
        )
    else:
        for pair in zip(
            *(rows(DATA / f"imdb/train-{side}.jsonl.gz") for side in ("neg", "pos")),
            strict=False,
        ):
            yield from ([row["text"]] for row in pair)
