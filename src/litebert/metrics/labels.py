"""How well labels are told: one label, several at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from litebert.metrics.some import require_some

MARKED_FROM = 0.5
"""A label of several is given from this probability on."""


def classification_measures(
    labels: NDArray[np.int64], probabilities: NDArray[np.floating]
) -> dict[str, float]:
    """Compare n labels with n rows of L probabilities; the likeliest label is the answer.

    `accuracy` and `matthews` always; with two labels `f1` of label 1 (GLUE), with more `macro_f1`,
    the mean over the labels that occur or are answered. What is undefined is 0.

    Raises:
        LitebertError: LB-430, there are no examples.

    >>> classification_measures(np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    {'accuracy': 0.5, 'f1': 0.0, 'matthews': 0.0}
    """
    require_some(len(labels))
    num_labels = probabilities.shape[1]
    cells = labels * num_labels + probabilities.argmax(axis=1)
    table = np.bincount(cells, minlength=num_labels**2).reshape(num_labels, num_labels)
    hits, wanted, found = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    scores = _f1(hits, wanted, found)
    occurring = (wanted + found) > 0
    named = {"f1": scores[1]} if num_labels == 2 else {"macro_f1": scores[occurring].mean()}
    return {
        "accuracy": float(hits.sum() / len(labels)),
        **{name: float(value) for name, value in named.items()},
        "matthews": _matthews(table),
    }


def multi_label_measures(
    marked: NDArray[np.int64], probabilities: NDArray[np.floating]
) -> dict[str, float]:
    """Compare n rows of L marks (0 or 1) with as many probabilities.

    `micro_f1` counts all marks alike, `macro_f1` is the mean over labels, `exact_match` the share
    of rows in which every mark is right.

    Raises:
        LitebertError: LB-430, there are no examples.

    >>> multi_label_measures(np.array([[1, 0], [1, 1]]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    {'micro_f1': 0.8, 'macro_f1': 0.5, 'exact_match': 0.5}
    """
    require_some(len(marked))
    is_wanted, is_found = marked.astype(bool), probabilities >= MARKED_FROM
    hits = (is_wanted & is_found).sum(axis=0)
    wanted, found = is_wanted.sum(axis=0), is_found.sum(axis=0)
    return {
        "micro_f1": float(_f1(hits.sum(), wanted.sum(), found.sum())),
        "macro_f1": float(_f1(hits, wanted, found).mean()),
        "exact_match": float((is_wanted == is_found).all(axis=1).mean()),
    }


def _f1(
    hits: NDArray[np.int64] | np.int64,
    wanted: NDArray[np.int64] | np.int64,
    found: NDArray[np.int64] | np.int64,
) -> NDArray[np.float64]:
    return np.asarray(2 * hits / np.maximum(wanted + found, 1))


def _matthews(table: NDArray[np.int64]) -> float:
    """Correlate wanted and found labels from their table of counts (any number of labels)."""
    counts = table.astype(np.float64)
    total, wanted, found = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    spread = (total**2 - wanted @ wanted) * (total**2 - found @ found)
    covariance = counts.trace() * total - wanted @ found
    return float(covariance / np.sqrt(spread)) if spread > 0 else 0.0
