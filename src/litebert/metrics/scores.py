"""Measures of predicted numbers: correlations and the squared error."""

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
    from scipy import stats

    require_some(wanted.size)
    first, second = wanted.astype(np.float64).ravel(), values.astype(np.float64).ravel()
    has_spread = np.ptp(first) > 0 and np.ptp(second) > 0
    return {
        "pearson": float(stats.pearsonr(first, second).statistic) if has_spread else 0.0,
        "spearman": float(stats.spearmanr(first, second).statistic) if has_spread else 0.0,
        "mse": float(np.square(first - second).mean()),
    }
