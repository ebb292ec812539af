"""Compare contenders: equal outputs first, then times in turns; one row of figures for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed import yardstick
from benchmarks.speed.timing import Call, Turns, load, seconds_of, take_turns

REFERENCE = "transformers fp32"


@dataclass(frozen=True)
class Contender:
    """A program at a precision, `program precision`: what is timed, and what it computes.

    Asking for the output is the first call; `warm` is what else must happen before time counts.
    """

    name: str
    call: Call
    output: Callable[[], NDArray[np.float32]]
    warm: Call = lambda: None


@dataclass(frozen=True)
class Row:
    """What one contender did on one work; the seconds of the reference are those of this run.

    `first` are the seconds of a first call, on shapes not met before; `error` is the largest
    difference to the reference's output over that output's largest value; `rate` is that of the
    packed product, in FLOP/s.
    """

    work: str
    threads: int
    name: str
    seconds: float
    reference: float
    first: float
    first_of_reference: float
    error: float
    num_tokens: int
    flops: int
    rate: float
    load: float

    @property
    def precision(self) -> str:
        """fp32, bf16 or int8."""
        return self.name.rsplit(" ", 1)[1]

    @property
    def ratio(self) -> float:
        """How many times faster than the reference."""
        return self.reference / self.seconds

    @property
    def utilisation(self) -> float:
        """Share of the packed product's rate; padding is not counted as work."""
        return self.flops / self.seconds / self.rate

    def __str__(self) -> str:
        return (
            f"{self.work:20} {self.threads} thr  {self.name:20} {self.seconds * 1e3:9.1f} ms "
            f"{self.ratio:6.2f}x  {self.utilisation:4.0%}  error {self.error:.1e}  "
            f"first call {self.first_of_reference / self.first:.2f}x  load {self.load:.1f}"
        )


def compare(work: str, contenders: Sequence[Contender], turns: Turns, *, num_tokens: int, flops: int) -> list[Row]:
    """Return a row for each contender; the reference must be among them."""
    outputs: dict[str, NDArray[np.float32]] = {}
    first: dict[str, float] = {}
    for contender in contenders:

        def compute(one: Contender = contender) -> None:
            outputs[one.name] = one.output()

        first[contender.name] = seconds_of(compute, turns.threads)
        contender.warm()
    calls = {contender.name: contender.call for contender in contenders}
    products = yardstick.products()
    taken = take_turns(calls | products, turns)
    return [
        Row(
            work=work,
            threads=turns.threads,
            name=name,
            seconds=taken[name],
            reference=taken[REFERENCE],
            first=first[name],
            first_of_reference=first[REFERENCE],
            error=difference(outputs[name], outputs[REFERENCE]),
            num_tokens=num_tokens,
            flops=flops,
            rate=yardstick.FLOPS / taken[name.rsplit(" ", 1)[1]],
            load=load(),
        )
        for name in calls
    ]


def difference(output: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return the largest difference over the largest value."""
    return float(np.abs(output - reference).max() / np.abs(reference).max())


def added(work: str, parts: Sequence[Sequence[Row]]) -> list[Row]:
    """Add the rows of several batches, contender by contender."""
    return [replace(reduce(_sum, rows), work=work) for rows in zip(*parts, strict=True)]


def _sum(left: Row, right: Row) -> Row:
    assert left.name == right.name
    return replace(
        left,
        seconds=left.seconds + right.seconds,
        reference=left.reference + right.reference,
        first=left.first + right.first,
        first_of_reference=left.first_of_reference + right.first_of_reference,
        error=max(left.error, right.error),
        num_tokens=left.num_tokens + right.num_tokens,
        flops=left.flops + right.flops,
        rate=max(left.rate, right.rate),
        load=max(left.load, right.load),
    )
