"""How well numbers are told: correlations and the squared error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from litebert.metrics.some import require_some


def regression_measures(
    wanted: NDArray[np.floating], values: NDArray[np.floating]
) -> dict[str, float]:
    """Compare n wanted scores with n answers, both of shape (n, 1) or (n,).

    `pearson`, `spearman` (ties share their mean rank) and `mse`; a correlation with what never
    varies is 0.

    Raises:
        LitebertError: LB-430, there are no examples.

    >>> regression_measures(np.array([1.0, 2.0, 2.0]), np.array([2.0, 4.0, 3.0]))["mse"]
    2.0
    """
    require_some(wanted.size)
    first, second = wanted.astype(np.float64).ravel(), values.astype(np.float64).ravel()
    return {
        "pearson": _correlation(first, second),
        "spearman": _correlation(_ranks(first), _ranks(second)),
        "mse": float(np.square(first - second).mean()),
    }


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    parts = [part - part.mean() for part in (first, second)]
    one, other = (part / np.linalg.norm(part) for part in parts)
    return float(np.clip(one @ other, -1.0, 1.0))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[places]
    return ranks
