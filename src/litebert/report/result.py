"""Measures of results in words, and over several seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from litebert.metrics.spread import Spread
from litebert.runs import Evaluation


def spreads(evaluations: Sequence[Evaluation]) -> dict[str, Spread]:
    """Summarise each measure that all evaluations have, one evaluation a seed."""
    names = [
        name for name in evaluations[0].measures if all(name in e.measures for e in evaluations)
    ]
    return {name: Spread.of([each.measures[name] for each in evaluations]) for name in names}


def number(value: float) -> str:
    """Write a measure, a count without decimals.

    >>> number(0.68382), number(10570.0), number(float("nan"))
    ('0.6838', '10,570', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    return f"{value:,.0f}" if abs(value) > 100 and value.is_integer() else f"{value:.4f}"
