"""Detect spikes: losses far above those before them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

WINDOW = 128
"""The number of losses that a spike is compared with (as in OLMo-core)."""
MAX_RETURNS = 8
"""The most returns to the same checkpoint; then the run stops."""


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
