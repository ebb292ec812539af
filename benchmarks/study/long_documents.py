"""Long documents end to end: what a model gains from reading more of them with local attention.

    python benchmarks/study/long_documents.py MODEL REVIEWS ARTICLES OUTPUT

MODEL is a folder with a masked-LM head, or `packaged`. REVIEWS has JSON lines of `text` and `label`
(IMDB for the committed figures), ARTICLES of `text` (Wikipedia). The model gets local attention and
positions for 2,048 pieces, its table repeated.

Classification: fine-tuned on reviews of more than 400 words, cut to 128 pieces, and whole; 3 seeds.
Retrieval: a query is a passage that begins beyond the first 600 words of an article; which article
is it from? The vectors of the articles are those of their first 128, 512 and 2,048 pieces.
Writes benchmarks/study/long-documents.json.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

import litebert
from litebert.api.study import write_lengthened
from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.files import Json, write_json, write_text
from litebert.runs import read_result
from litebert.train.finetune import finetune

POSITIONS, WINDOW = 2_048, 64
LENGTHS = (128, 512, POSITIONS)
NUM_TRAINING, NUM_DEV, NUM_ARTICLES = 160, 120, 100
SEEDS = (1, 2, 3)


def main(model: str, reviews: Path, articles: Path, output: Path) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    loaded = litebert.load(None if model == "packaged" else model)
    folder = output / "long"
    if not folder.exists():
        write_lengthened(loaded, folder, POSITIONS, WINDOW)
    retrieval = _retrieval(folder, articles)
    classification = _classification(folder, reviews, output)
    found: dict[str, Json] = {"model": loaded.source, "window": WINDOW}
    found |= {"retrieval": retrieval, "classification": classification}
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


def _classification(folder: Path, reviews: Path, output: Path) -> list[Json]:
    files = [reviews / f"train-{side}.jsonl.gz" for side in ("pos", "neg")]
    sides = [[row for row in _rows(f) if len(row["text"].split()) > 400] for f in files]
    rows = [row for pair in zip(*sides, strict=False) for row in pair][: NUM_TRAINING + NUM_DEV]
    names = {"train": rows[:NUM_TRAINING], "dev": rows[NUM_TRAINING:]}
    for name, part in names.items():
        lines = (json.dumps({"text": r["text"], "label": str(r["label"])}) for r in part)
        write_text(output / f"{name}.jsonl", "".join(f"{line}\n" for line in lines))
    found: list[Json] = []
    for length in (128, 1_024):
        values, seconds = [], []
        for seed in SEEDS:
            begun = time.process_time()
            values.append(_accuracy(folder, output, length, seed))
            seconds.append(time.process_time() - begun)
        spread = float(np.std(values, ddof=1))
        row = {"pieces": length, "accuracy": fmean(values), "deviation": spread}
        found.append({**row, "seeds": len(SEEDS), "CPU s": round(fmean(seconds), 1)})
    return found


def _accuracy(folder: Path, output: Path, length: int, seed: int) -> float:
    run = output / f"reviews-{length}-{seed}"
    words = ["task.name=table", f"data.train={output / 'train.jsonl'}"]
    words += [f"data.dev={output / 'dev.jsonl'}", f"model.start={folder}"]
    words += [f"task.max_length={length}", "train.epochs=1", "train.batch_size=8"]
    words += ["optim.learning_rate=3e-4", "train.precision=bf16", "train.micro_batch_size=4"]
    words += [f"train.seed={seed}"]
    finetune(resolve(FinetuneConfig, settings_from_words(words)), run, is_quiet=True)
    result = read_result(run)
    assert result is not None
    return result.last.measures["accuracy"]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:5]))
