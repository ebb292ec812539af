"""A loss far above those before it: return to the last checkpoint, and omit the batches since."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

WINDOW = 128
"""Losses that a spike is measured against (as in OLMo-core)."""
MAX_RETURNS = 8
"""Returns to one checkpoint after which the run stops."""


def is_spike(loss: float, before: Sequence[float], sigma: float | None) -> bool:
    """Return whether a loss lies `sigma` standard deviations above the mean of the last 128.

    >>> is_spike(9.0, [1.0, 1.1] * 64, 6), is_spike(1.2, [1.0, 1.1] * 64, 6)
    (True, False)
    >>> is_spike(9.0, [1.0] * 3, 6), is_spike(9.0, [1.0, 1.1] * 64, None)
    (False, False)
    """
    if sigma is None or len(before) < WINDOW:
        return False
    return loss > statistics.fmean(before) + sigma * statistics.pstdev(before)
