"""What the benchmarks read: the test data (LITEBERT_TEST_DATA), made-up tokens, and
real texts in batches, in the order of their files.
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

BOOKS = DATA / "text" / "books.jsonl.gz"
ARTICLES = DATA / "text" / "wiki_articles.jsonl.gz"
EVERYDAY = DATA / "text" / "everyday.jsonl.gz"
SST2 = DATA / "glue" / "SST-2" / "train.tsv.gz"
IMDB_SIDES = ("neg", "pos")


# ---- files ---------------------------------------------------------------------------


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a compressed file: JSON lines, or a table with tabs and no
    quotes.
    """
    with _unpacked(path) as lines:
        if ".jsonl" in path.name:
            yield from map(json.loads, lines)
            return
        names = None
        if "CoLA" in path.parts:  # it has no heading
            names = ("source", "label", "original", "sentence")
        yield from csv.DictReader(lines, names, delimiter="\t", quoting=csv.QUOTE_NONE)


def _unpacked(path: Path) -> TextIO:
    if path.suffix == ".zst":
        unpacked = pyarrow.input_stream(path, compression="zstd")
        return io.TextIOWrapper(unpacked, encoding="utf-8")
    return gzip.open(path, "rt", encoding="utf-8")


def chapters() -> Iterator[str]:
    """Yield the chapters of all books."""
    for book in rows(BOOKS):
        for chapter in book["chapters"]:
            yield chapter["text"]


def articles() -> Iterator[str]:
    """Yield the articles of Wikipedia."""
    for article in rows(ARTICLES):
        yield article["text"]


def squad(part: str) -> list[list[dict[str, Any]]]:
    """Return the paragraphs of each article of SQuAD 1.1: `train` or `dev`."""
    with gzip.open(DATA / f"squad/{part}-v1.1.json.gz", "rt", encoding="utf-8") as file:
        return [article["paragraphs"] for article in json.load(file)["data"]]


def imdb(side: str) -> Iterator[str]:
    """Yield the reviews of one side: `neg` or `pos`."""
    for row in rows(DATA / f"imdb/train-{side}.jsonl.gz"):
        yield row["text"]


# ---- tasks ---------------------------------------------------------------------------

# the file, its columns of text, and its column of labels
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
        return _labeled_reviews()
    name, text_columns, label_column = TABLES[task]
    examples = list[dict[str, str]]()
    for row in rows(DATA / name):
        has_wrong_tabs = None in row or None in row.values()  # too many, or too few
        if has_wrong_tabs:
            continue
        example = {}
        for side, column in zip("ab", text_columns, strict=False):
            example[side] = row[column]
        example["label"] = row[label_column]
        examples.append(example)
    return examples


def _labeled_reviews() -> list[dict[str, str]]:
    examples = list[dict[str, str]]()
    for side in IMDB_SIDES:
        examples += [{"a": text, "label": side} for text in imdb(side)]
    return examples


def csv_text(table: list[dict[str, str]]) -> str:
    """Return rows as a CSV file with a heading."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]))
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def sst2() -> Iterator[tuple[str, int]]:
    """Yield the texts of SST-2 with their labels."""
    for row in rows(SST2):
        yield row["sentence"], int(row["label"])


# ---- batches -------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """A ragged batch: the ids and the segments of each sequence."""

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
        return {
            "input_ids": self._rectangle(self.ids),
            "attention_mask": self.mask.astype(np.int64),
            "token_type_ids": self._rectangle(self.segments),
        }

    def _rectangle(self, sequences: tuple[list[int], ...]) -> NDArray[np.int64]:
        values = np.zeros(self.mask.shape, dtype=np.int64)  # (sequences, tokens)
        values[self.mask] = list(itertools.chain(*sequences))
        return values


def made_up(
    lengths: Iterable[int], *, vocab_size: int = 30_000, seed: int = 1
) -> Texts:
    """Return sequences of these lengths with random ids."""
    draw = np.random.default_rng(seed)
    ids = tuple(draw.integers(5, vocab_size, length).tolist() for length in lengths)
    segments = tuple([0] * len(sequence) for sequence in ids)
    return Texts(ids, segments)


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
        first, *others = tokenizer.encode_ids(texts)
        second = others[0] if others else None
        framed.append(frame_ids(tokenizer, first, second, max_length=MAX_LENGTH))
    batches = list[Texts]()
    for begin in range(0, count, batch_size):
        ids, segments = zip(*framed[begin : begin + batch_size], strict=True)
        batches.append(Texts(ids, segments))
    return batches


def stream(corpus: str) -> Iterator[list[str]]:
    """Yield the texts of SST-2 or IMDB (in turns of both sides), or the pairs of
    NLI.
    """
    if corpus == "SST-2":
        for text, _ in sst2():
            yield [text]
    elif corpus == "NLI":
        for row in rows(DATA / "nli" / "mnli_dev_matched_a.jsonl.gz"):
            yield [row["premise"], row["hypothesis"]]
    else:
        for reviews in zip(*map(imdb, IMDB_SIDES), strict=False):
            for review in reviews:
                yield [review]
