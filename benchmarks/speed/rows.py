"""Compare contenders: equal outputs first, then times in turns; one row of figures for
each, and their tables.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.measure import Call, machine, seconds_of, table, take_turns

REFERENCE = "transformers fp32"
ROWS = 1_024
INNER = 768
COLUMNS = 3_072
"""The yardstick: one large product with packed weights, whose rate is what the machine
can do.
"""
HEADING = "## Speed on a CPU: `make bench`"
PRECISIONS = ("fp32", "bf16", "int8")


@dataclass(frozen=True)
class Contender:
    """`program precision`: what is timed, what it computes (the first call), and what
    must happen before.
    """

    name: str
    call: Call
    output: Callable[[], NDArray[np.float32]]
    warm: Call = lambda: None


@dataclass(frozen=True)
class Row:
    """What one contender did on one work; the seconds of the reference are those of
    this run.

    `first` are the seconds of a first call, on shapes not met before; `error` is the
    largest difference to the reference's output over that output's largest value;
    `rate` is that of the packed product, in FLOP/s.
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
    def ratio(self) -> float:
        return self.reference / self.seconds

    @property
    def utilization(self) -> float:
        return self.flops / self.seconds / self.rate

    def __str__(self) -> str:
        line = (
            f"{self.work:20} {self.threads} thr  {self.name:20}"
            f" {self.seconds * 1e3:9.1f} ms {self.ratio:6.2f}x"
        )
        return (
            f"{line}  {self.utilization:4.0%}  error {self.error:.1e}  load"
            f" {self.load:.1f}"
        )


def compare(
    work: str,
    contenders: Sequence[Contender],
    *,
    num_tokens: int,
    flops: int,
    **turns: float,
) -> list[Row]:
    """Return a row for each contender; the reference must be among them, and `turns`
    are arguments of `take_turns`.

    On one thread it is the minimum of the CPU times, which other work on the machine
    disturbs least. On more threads it is the median of the wall times; look at the load
    next to it.
    """
    threads = torch.get_num_threads()
    clock, of_rounds = (
        (time.process_time, min) if threads == 1 else (time.perf_counter, median)
    )
    outputs: dict[str, NDArray[np.float32]] = {}
    first: dict[str, float] = {}
    for one in contenders:
        first[one.name] = seconds_of(
            lambda one=one: outputs.update({one.name: one.output()}), clock
        )
        one.warm()
    calls = {one.name: one.call for one in contenders}
    taken = take_turns(calls | products(), clock=clock, **turns)
    found = {name: of_rounds(each) for name, each in taken.items()}
    wanted = outputs[REFERENCE]
    rows = []
    for name in calls:
        error = float(np.abs(outputs[name] - wanted).max() / np.abs(wanted).max())
        rate = 2 * ROWS * INNER * COLUMNS / found[name.rsplit(" ", 1)[1]]
        times = (found[name], found[REFERENCE], first[name], first[REFERENCE])
        rows.append(
            Row(
                work,
                threads,
                name,
                *times,
                error,
                num_tokens,
                flops,
                rate,
                os.getloadavg()[0],
            )
        )
    print(*rows, sep="\n", flush=True)
    return rows


def added(work: str, parts: Sequence[Sequence[Row]]) -> list[Row]:

    def plus(left: Row, right: Row) -> Row:
        assert left.name == right.name
        sums = (
            "seconds",
            "reference",
            "first",
            "first_of_reference",
            "num_tokens",
            "flops",
        )
        values: dict[str, Any] = {
            name: getattr(left, name) + getattr(right, name) for name in sums
        }
        values |= {
            name: max(getattr(left, name), getattr(right, name))
            for name in ("error", "rate", "load")
        }
        return replace(left, **values)

    rows = [replace(reduce(plus, same), work=work) for same in zip(*parts, strict=True)]
    print(*rows, sep="\n", flush=True)
    return rows


def products() -> dict[str, Call]:
    """Return the yardstick by precision, on random numbers; it uses private operators
    of torch, hence only here.

    The int8 product is of unsigned activations, zero at 128, and signed weights.
    """
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, INNER, generator=generator)
    weight = torch.randn(COLUMNS, INNER, generator=generator)
    calls: dict[str, Call] = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), ROWS)
        calls[name] = partial(
            torch.ops.mkldnn._linear_pointwise,
            x.to(dtype),
            packed,
            None,
            "none",
            [],
            "",
        )
    unsigned = (x * 40 + 128).clamp(0, 255).to(torch.uint8)
    signed = (weight * 40).clamp(-127, 127).to(torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(signed, [ROWS, INNER])
    scales = torch.full((COLUMNS,), 0.025)
    zeros = torch.zeros(COLUMNS, dtype=torch.int32)
    given = (
        unsigned,
        0.025,
        128,
        packed,
        scales,
        zeros,
        None,
        1.0,
        0,
        torch.float32,
        "none",
        [],
        "",
    )
    calls["int8"] = partial(torch.ops.onednn.qlinear_pointwise, *given)
    return calls


# ---- the tables: litebert and the best rival, then every contender -------------------

LEGEND = """\
One network with random weights; all contenders of a part in one process,
taking turns in random order. "Times" is how many times faster than transformers (`AutoModel`,
sdpa, fp32, padded to the longest text of a batch). "Use" is the network's FLOPs, padding not
counted, over the rate of a packed 1024 x 768 x 3072 product of the same precision in the same
turns. "Error" is the largest difference to the output of transformers in fp32 over its largest
value. "First" is "times" for first calls, on shapes not met before, compiling included. Streams are
batches of 16 texts in the order of their files; `stream` is their sum."""


def document(figures: dict[str, list[dict[str, Any]]], shape: str) -> str:
    rows = [
        Row(**f) for part, found in figures.items() if part != "cold" for f in found
    ]
    parts = [
        HEADING if shape == "base-v2" else f"{HEADING}, {shape}",
        machine(),
        LEGEND,
    ]
    for threads in sorted({row.threads for row in rows}):
        chosen = [row for row in rows if row.threads == threads]
        loads = [row.load for row in chosen]
        clock = "processor time, least" if threads == 1 else "wall time, median"
        title = (
            f"### {threads} thread{'s' * (threads > 1)} ({clock}; load {min(loads):.1f}"
            f" to {max(loads):.1f})"
        )
        parts += [title, summary(chosen), details(chosen)]
    if cold := figures.get("cold"):
        header = [
            "after the imports",
            "first answer, s",
            "of a core, s",
            "resident, MB",
        ]
        header += ["of which anonymous", "four processes, MB", "four forked, MB"]
        digits = (2, 2, 0, 0, 0, 0)
        lines = [
            [
                row["name"],
                *(f"{v:.{n}f}" for v, n in zip(row["values"], digits, strict=True)),
            ]
            for row in cold
        ]
        parts += ["### From a folder to the first answer", table(header, lines)]
    return "\n\n".join(parts) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """Return one line per work: litebert's ratio, and in brackets the best rival's."""
    lines = []
    for work in dict.fromkeys(row.work for row in rows):
        cells = [work]
        for precision in PRECISIONS:
            chosen = [
                row
                for row in rows
                if row.work == work and row.name.endswith(f" {precision}")
            ]
            ours = [row for row in chosen if row.name.startswith("litebert")]
            others = sorted(
                (row for row in chosen if row not in ours), key=lambda row: -row.ratio
            )
            best = (
                f"({others[0].ratio:.2f} {others[0].name.split()[0]})" if others else ""
            )
            cells.append(f"**{ours[0].ratio:.2f}** {best}".strip() if ours else best)
        lines.append(cells)
    return table(["times faster than transformers", *PRECISIONS], lines)


def details(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        cells = [
            row.work,
            row.name,
            f"{row.seconds * 1e3:,.1f}",
            f"{row.num_tokens / row.seconds:,.0f}",
        ]
        cells += [
            f"{row.ratio:.2f}",
            f"{row.utilization:.0%}",
            "" if row.name == REFERENCE else f"{row.error:.0e}",
        ]
        lines.append([*cells, f"{row.first_of_reference / row.first:.2f}"])
    return table(
        ["work", "contender", "ms", "tokens/s", "times", "use", "error", "first"], lines
    )
