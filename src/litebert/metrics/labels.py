"""Measures of predicted labels and of predicted numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from litebert.metrics.some import require_some

MARKED_FROM = 0.5
"""In multi-label classification, a label is given at this probability or above."""


def regression_measures(wanted: NDArray[np.floating], values: NDArray[np.floating]) -> dict[str, float]:
    """Compare n right scores with n answers, both of shape (n, 1) or (n,).

    Returns `pearson`, `spearman` (ties share their mean rank) and `mse`; if one side never varies,
    correlations are 0.

    Raises:
        LitebertError: LB-430, there are no examples.

    >>> regression_measures(np.array([1.0, 2.0, 2.0]), np.array([2.0, 4.0, 3.0]))["mse"]
    2.0
    """
    from scipy import stats

    require_some(wanted.size)
    first, second = wanted.astype(np.float64).ravel(), values.astype(np.float64).ravel()
    has_spread = np.ptp(first) > 0 and np.ptp(second) > 0
    return {
        "pearson": float(stats.pearsonr(first, second).statistic) if has_spread else 0.0,
        "spearman": float(stats.spearmanr(first, second).statistic) if has_spread else 0.0,
        "mse": float(np.square(first - second).mean()),
    }


def classification_measures(labels: NDArray[np.int64], probabilities: NDArray[np.floating]) -> dict[str, float]:
    """Compare labels (n,) with probabilities (n, L); the likeliest label is the answer.

    Returns `accuracy` and `matthews`; for two labels also `f1` of label 1 (GLUE), for more
    `macro_f1`, the mean over the labels that occur or are answered. Undefined values are 0.

    Raises:
        LitebertError: LB-430, there are no examples.

    >>> classification_measures(np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    {'accuracy': 0.5, 'f1': 0.0, 'matthews': 0.0}
    """
    from sklearn import metrics

    require_some(len(labels))
    found = probabilities.argmax(axis=1)
    is_binary = probabilities.shape[1] == 2
    average = "binary" if is_binary else "macro"
    f1 = metrics.f1_score(labels, found, average=average, zero_division=0.0)
    has_spread = len(np.unique(labels)) > 1 and len(np.unique(found)) > 1
    return {
        "accuracy": float(metrics.accuracy_score(labels, found)),
        "f1" if is_binary else "macro_f1": float(f1),
        "matthews": float(metrics.matthews_corrcoef(labels, found)) if has_spread else 0.0,
    }


def multi_label_measures(marked: NDArray[np.int64], probabilities: NDArray[np.floating]) -> dict[str, float]:
    """Compare marks of 0 or 1 (n, L) with probabilities (n, L).

    Returns `micro_f1` over all marks, `macro_f1`, the mean over labels, and `exact_match`, the
    share of rows in which every mark is right.

    Raises:
        LitebertError: LB-430, there are no examples.

    >>> multi_label_measures(np.array([[1, 0], [1, 1]]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    {'micro_f1': 0.8, 'macro_f1': 0.5, 'exact_match': 0.5}
    """
    from sklearn import metrics

    require_some(len(marked))
    found = (probabilities >= MARKED_FROM).astype(np.int64)
    averages = {f"{name}_f1": name for name in ("micro", "macro")}
    return {
        **{
            name: float(metrics.f1_score(marked, found, average=average, zero_division=0.0))
            for name, average in averages.items()
        },
        "exact_match": float((marked == found).all(axis=1).mean()),
    }
