"""A linear probe on eight tasks: what the vectors of a model hold, without fine-tuning it.

python benchmarks/tasks/probe.py OUT packaged=src/litebert/model teacher=FOLDER random

Needs LITEBERT_TEST_DATA (glue, nli, imdb). 2,000 rows to train on and 1,000 others, drawn by a hash
from the labelled rows. A text is its mean-pooled vector; a pair is (|u - v|, u * v). Logistic
regression (ridge for STS-B) on standardised columns; its strength is chosen by cross-validation
on the training rows. `random` is the first model's network with random weights. OUT gets a JSON
line for each result; the table is printed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import matthews_corrcoef
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_data import REGRESSION, TASKS, read  # the neighbour in this folder

import litebert
from litebert import Model
from litebert.files import append_line
from litebert.folder import load_model, save_model
from litebert.nn import AlbertForPretraining
from litebert.rng import hashed
from litebert.tokenizer import Tokenizer

NUM_TRAIN, NUM_HELD_OUT, MAX_CHARACTERS = 2_000, 1_000, 800
STRENGTHS = (1e-4, 1e-3, 1e-2)


def main(out: Path, models: list[str]) -> None:
    """Measure each model on each task."""
    first = Path(models[0].partition("=")[2])
    scores: dict[str, dict[str, float]] = {name: {} for name in TASKS}
    for word in models:
        label, _, folder = word.partition("=")
        model = litebert.load(folder) if folder else _random(first)
        for name in TASKS:
            score = scores[name][label] = measured(model, name)
            append_line(out, json.dumps({"task": name, "model": label, "score": score}))
    labels = [word.partition("=")[0] for word in models]
    print("| task | commonest |", " | ".join(labels), "|\n|" + "---|" * (2 + len(labels)))
    for name in TASKS:
        row = " | ".join(f"{100 * scores[name][label]:.1f}" for label in labels)
        print(f"| {name} | {commonest(name)} | {row} |")


def measured(model: Model, name: str) -> float:
    """Return accuracy, Matthews (CoLA) or Spearman (STS-B) on the held-out rows."""
    train, held_out = rows_of(name)
    x, x_held_out = features(model, train), features(model, held_out)
    y, wanted = (np.array([row["label"] for row in rows]) for rows in (train, held_out))
    if name in REGRESSION:
        probe = make_pipeline(StandardScaler(), RidgeCV(np.logspace(1, 5, 9)))
        found = probe.fit(x, y.astype(float)).predict(x_held_out)
        return float(spearmanr(found, wanted.astype(float)).statistic)
    steps = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    probe = GridSearchCV(steps, {"logisticregression__C": STRENGTHS}, cv=3)
    found = probe.fit(x, y).predict(x_held_out)
    return float(matthews_corrcoef(wanted, found) if name == "cola" else np.mean(wanted == found))


def rows_of(name: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the rows to train on and the held-out ones, in an order that a hash gives."""
    rows = sorted(read(name), key=lambda row: int(hashed(1, row["a"] + row.get("b", ""), 0)))
    rows = rows[: NUM_TRAIN + NUM_HELD_OUT]
    return rows[:-NUM_HELD_OUT], rows[-NUM_HELD_OUT:]


def commonest(name: str) -> str:
    """Return what the commonest label gets; nothing where the measure is a correlation."""
    if name in (*REGRESSION, "cola"):
        return ""
    train, held_out = rows_of(name)
    common = Counter(row["label"] for row in train).most_common(1)[0][0]
    return f"{100 * sum(row['label'] == common for row in held_out) / len(held_out):.1f}"


def features(model: Model, rows: list[dict[str, str]]) -> NDArray[np.float32]:
    """Return (rows, columns) from the vectors of the texts."""
    u = _vectors(model, [row["a"] for row in rows])
    if "b" not in rows[0]:
        return u
    v = _vectors(model, [row["b"] for row in rows])
    return np.hstack([abs(u - v), u * v])


def _vectors(model: Model, texts: list[str]) -> NDArray[np.float32]:
    return np.asarray(model.embed([text[:MAX_CHARACTERS] for text in texts], pooling="mean", normalize=True))


def _random(folder: Path) -> Model:
    torch.manual_seed(1)
    network = AlbertForPretraining(load_model(folder).network.config)
    with tempfile.TemporaryDirectory() as made:
        save_model(network, Path(made), dtype=torch.float32)
        Tokenizer.load(folder).save(Path(made))
        return litebert.load(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
