"""Long documents end to end: what a model gains from reading more of them with local attention.

    python -m benchmarks.study.long_documents MODEL ARTICLES REVIEWS OUTPUT

MODEL is a folder with a masked-LM head, or `packaged`, ARTICLES has JSON lines of `text` (Wikipedia
for the committed figures), REVIEWS a folder of train-neg.jsonl.gz and train-pos.jsonl.gz (IMDB).
The model gets local attention and positions for 2,048 pieces, its first 128 rows repeated, and no
further training. Retrieval: a query is a passage that begins beyond the first 600 words of an
article; which article is it from? Classification: the sentiment of reviews of 700 words and more,
by a logistic regression on their vectors. A document's vector is that of its first 128, 512 and
2,048 pieces. Writes benchmarks/study/long-documents.json.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import litebert
from benchmarks.texts import rows
from litebert.files import Json, write_json
from litebert.study.masked import write_lengthened

POSITIONS, TRAINED, WINDOW = 2_048, 128, 64
LENGTHS = (128, 512, POSITIONS)
NUM_ARTICLES, NUM_REVIEWS, NUM_FOLDS = 60, 300, 5


def main(model: str, articles: Path, reviews: Path, output: Path) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    loaded = litebert.load(None if model == "packaged" else model)
    folder = output / "long"
    if not folder.exists():
        write_lengthened(loaded, folder, POSITIONS, WINDOW, trained=TRAINED)
    longer = litebert.load(folder)
    found: dict[str, Json] = {"model": model, "window": WINDOW}
    found |= {"retrieval": _retrieval(longer, articles)}
    found |= {"classification": _classification(longer, reviews)}
    write_json(Path(__file__).parent / "long-documents.json", found)
    print(json.dumps(found, indent=2))


def _retrieval(model: litebert.Model, articles: Path) -> list[Json]:
    texts = [row["text"].split() for row in rows(articles)]
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


def _classification(model: litebert.Model, reviews: Path) -> list[Json]:
    texts: list[str] = []
    for side in ("neg", "pos"):
        of_side = (row["text"] for row in rows(reviews / f"train-{side}.jsonl.gz"))
        texts += islice((text for text in of_side if len(text.split()) >= 700), NUM_REVIEWS)
    labels = np.repeat([0, 1], NUM_REVIEWS)
    found: list[Json] = []
    for length in LENGTHS:
        begun = time.process_time()
        vectors = model.embed([_first(model, text, length) for text in texts], normalize=False)
        seconds = time.process_time() - begun
        probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1_000))
        folds = StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=1)
        scores = cross_val_score(probe, vectors, labels, cv=folds)
        row = {"reviews": len(texts), "pieces": length, "accuracy": float(scores.mean())}
        # The deviation between folds, as an error of their mean.
        row |= {"error": float(scores.std(ddof=1) / NUM_FOLDS**0.5), "CPU s": round(seconds, 1)}
        found.append(row)
    return found


def _first(model: litebert.Model, text: str, length: int) -> str:
    """Return the text of its first pieces."""
    (ids,) = model.tokenizer.encode_ids([text])
    return model.tokenizer.decode(ids[: length - 2])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("articles", type=Path)
    parser.add_argument("reviews", type=Path)
    parser.add_argument("output", type=Path)
    main(**vars(parser.parse_args()))
