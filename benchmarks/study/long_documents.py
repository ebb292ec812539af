"""Retrieval of long documents: what a model gains from reading more of them with local attention.

    python benchmarks/study/long_documents.py MODEL ARTICLES OUTPUT

MODEL is a folder with a masked-LM head, or `packaged`, ARTICLES has JSON lines of `text` (Wikipedia
for the committed figures). The model gets local attention and positions for 2,048 pieces, its table
repeated, and no further training. A query is a passage that begins beyond the first 600 words of an
article; which article is it from? The vectors of the articles are those of their first 128, 512 and
2,048 pieces. Writes benchmarks/study/long-documents.json.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import litebert
from litebert.api.study import write_lengthened
from litebert.files import Json, write_json

POSITIONS, WINDOW = 2_048, 64
LENGTHS = (128, 512, POSITIONS)
NUM_ARTICLES = 60


def main(model: str, articles: Path, output: Path) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    loaded = litebert.load(None if model == "packaged" else model)
    folder = output / "long"
    if not folder.exists():
        write_lengthened(loaded, folder, POSITIONS, WINDOW)
    retrieval = _retrieval(folder, articles)
    found: dict[str, Json] = {"model": loaded.source, "window": WINDOW, "retrieval": retrieval}
    write_json(Path(__file__).parent / "long-documents.json", found)
    print(json.dumps(found, indent=2))


def _retrieval(folder: Path, articles: Path) -> list[Json]:
    model = litebert.load(folder)
    texts = [row["text"].split() for row in _rows(articles)]
    chosen = [words for words in texts if 1_200 <= len(words) <= 1_600][:NUM_ARTICLES]
    queries = model.embed([" ".join(words[700:760]) for words in chosen], normalize=True)
    found: list[Json] = []
    for length in LENGTHS:
        begun = time.process_time()
        cut = [_first(model, " ".join(words), length) for words in chosen]
        vectors = model.embed(cut, normalize=True)
        seconds = time.process_time() - begun
        ranks = (queries @ vectors.T).argsort(1)[:, ::-1]
        places = np.argmax(ranks == np.arange(len(chosen))[:, None], axis=1)
        row = {"pieces": length, "recall at 1": float((places == 0).mean())}
        row |= {"recall at 10": float((places < 10).mean()), "CPU s": round(seconds, 1)}
        found.append({"articles": len(chosen), **row})
    return found


def _first(model: litebert.Model, text: str, length: int) -> str:
    """Return the text of its first pieces."""
    (ids,) = model.tokenizer.encode_ids([text])
    return model.tokenizer.decode(ids[: length - 2])


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:4]))
