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
from torch import Tensor

from benchmarks.measure import Call, machine, table, take_turns

REFERENCE = "transformers fp32"
ROWS = 1_024
INNER = 768
COLUMNS = 3_072
PRODUCT_FLOPS = 2 * ROWS * INNER * COLUMNS
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
        return (
            f"{self.work:20} {self.threads} thr  {self.name:20}"
            f" {self.seconds * 1e3:9.1f} ms {self.ratio:6.2f}x"
            f"  {self.utilization:4.0%}  error {self.error:.1e}  load {self.load:.1f}"
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
    clock = time.process_time if threads == 1 else time.perf_counter
    of_rounds = min if threads == 1 else median
    outputs = dict[str, NDArray[np.float32]]()
    first = dict[str, float]()
    for contender in contenders:
        started = clock()
        outputs[contender.name] = contender.output()
        first[contender.name] = clock() - started
        contender.warm()
    calls = {contender.name: contender.call for contender in contenders}
    taken = take_turns(calls | products(), clock=clock, **turns)
    seconds = {name: of_rounds(times) for name, times in taken.items()}
    rows = list[Row]()
    for name in calls:
        _, precision = name.rsplit(" ", 1)
        row = Row(
            work,
            threads,
            name,
            seconds=seconds[name],
            reference=seconds[REFERENCE],
            first=first[name],
            first_of_reference=first[REFERENCE],
            error=_relative_error(outputs[name], outputs[REFERENCE]),
            num_tokens=num_tokens,
            flops=flops,
            rate=PRODUCT_FLOPS / seconds[precision],
            load=os.getloadavg()[0],
        )
        rows.append(row)
    print(*rows, sep="\n", flush=True)
    return rows


def _relative_error(
    output: NDArray[np.float32], reference: NDArray[np.float32]
) -> float:
    return float(np.abs(output - reference).max() / np.abs(reference).max())


def added(work: str, parts: Sequence[Sequence[Row]]) -> list[Row]:
    """Return a row for each contender, which did all parts of a work."""
    rows = list[Row]()
    for rows_of_one in zip(*parts, strict=True):
        rows.append(replace(reduce(_sum, rows_of_one), work=work))
    print(*rows, sep="\n", flush=True)
    return rows


def _sum(left: Row, right: Row) -> Row:
    assert left.name == right.name
    return replace(
        left,
        seconds=left.seconds + right.seconds,
        reference=left.reference + right.reference,
        first=left.first + right.first,
        first_of_reference=left.first_of_reference + right.first_of_reference,
        num_tokens=left.num_tokens + right.num_tokens,
        flops=left.flops + right.flops,
        error=max(left.error, right.error),
        rate=max(left.rate, right.rate),
        load=max(left.load, right.load),
    )


# ---- the yardstick -------------------------------------------------------------------


def products() -> dict[str, Call]:
    """Return the yardstick by precision, on random numbers; it uses private operators
    of torch, hence only here.

    The int8 product is of unsigned activations, zero at 128, and signed weights.
    """
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, INNER, generator=generator)
    weight = torch.randn(COLUMNS, INNER, generator=generator)
    calls = {
        "fp32": _packed_product(x, weight),
        "bf16": _packed_product(x.bfloat16(), weight.bfloat16()),
    }
    unsigned = (x * 40 + 128).clamp(0, 255).to(torch.uint8)
    signed = (weight * 40).clamp(-127, 127).to(torch.int8)
    calls["int8"] = partial(
        torch.ops.onednn.qlinear_pointwise,
        unsigned,
        0.025,  # scale of the activations, and their zero
        128,
        torch.ops.onednn.qlinear_prepack(signed, [ROWS, INNER]),
        torch.full((COLUMNS,), 0.025),  # scales of the weights, and their zeros
        torch.zeros(COLUMNS, dtype=torch.int32),
        None,  # no bias
        1.0,  # scale, zero and type of the output
        0,
        torch.float32,
        "none",  # nothing is done to the output
        [],
        "",
    )
    return calls


def _packed_product(x: Tensor, weight: Tensor) -> Call:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
    return partial(torch.ops.mkldnn._linear_pointwise, x, packed, None, "none", [], "")


# ---- the tables: litebert and the best rival, then every contender -------------------

LEGEND = """\
One network with random weights; all contenders of a part in one process,
taking turns in random order. "Times" is how many times faster than transformers (`AutoModel`,
sdpa, fp32, padded to the longest text of a batch). "Use" is the network's FLOPs, padding not
counted, over the rate of a packed 1024 x 768 x 3072 product of the same precision in the same
turns. "Error" is the largest difference to the output of transformers in fp32 over its largest
value. "First" is "times" for first calls, on shapes not met before, compiling included. Streams are
batches of 16 texts in the order of their files; `stream` is their sum."""


COLD_HEADER = (
    "after the imports",
    "first answer, s",
    "of a core, s",
    "resident, MB",
    "of which anonymous",
    "four processes, MB",
    "four forked, MB",
)


def document(figures: dict[str, list[dict[str, Any]]], shape: str) -> str:
    """Return the section of RESULTS.md; `figures` are those of each part."""
    heading = HEADING if shape == "base-v2" else f"{HEADING}, {shape}"
    parts = [heading, machine(), LEGEND]
    rows = list[Row]()
    for part, of_part in figures.items():
        if part != "cold":
            rows += [Row(**values) for values in of_part]
    for threads in sorted({row.threads for row in rows}):
        chosen = [row for row in rows if row.threads == threads]
        parts += [_title(threads, chosen), summary(chosen), details(chosen)]
    if "cold" in figures:
        lines = [_cold_line(measured) for measured in figures["cold"]]
        parts += ["### From a folder to the first answer", table(COLD_HEADER, lines)]
    return "\n\n".join(parts) + "\n"


def _title(threads: int, rows: Sequence[Row]) -> str:
    loads = [row.load for row in rows]
    measured = "1 thread (processor time, least"
    if threads > 1:
        measured = f"{threads} threads (wall time, median"
    return f"### {measured}; load {min(loads):.1f} to {max(loads):.1f})"


def _cold_line(measured: dict[str, Any]) -> list[str]:
    *seconds, resident, anonymous, started, forked = measured["values"]
    return [
        measured["name"],
        *(f"{value:.2f}" for value in seconds),
        *(f"{value:.0f}" for value in (resident, anonymous, started, forked)),
    ]


def summary(rows: Sequence[Row]) -> str:
    """Return one line per work: litebert's ratio, and in brackets the best rival's."""
    lines = list[list[str]]()
    for work in dict.fromkeys(row.work for row in rows):
        cells = [work]
        of_work = [row for row in rows if row.work == work]
        for precision in PRECISIONS:
            ending = f" {precision}"
            chosen = [row for row in of_work if row.name.endswith(ending)]
            cells.append(_summary_cell(chosen))
        lines.append(cells)
    return table(["times faster than transformers", *PRECISIONS], lines)


def _summary_cell(rows: Sequence[Row]) -> str:
    ours = [row for row in rows if row.name.startswith("litebert")]
    others = [row for row in rows if row not in ours]
    parts = list[str]()
    if ours:
        parts.append(f"**{ours[0].ratio:.2f}**")
    if others:
        best = max(others, key=lambda row: row.ratio)
        program, _ = best.name.rsplit(" ", 1)
        parts.append(f"({best.ratio:.2f} {program})")
    return " ".join(parts)


def details(rows: Sequence[Row]) -> str:
    """Return one line per work and contender."""
    header = (
        "work",
        "contender",
        "ms",
        "tokens/s",
        "times",
        "use",
        "error",
        "first",
    )
    return table(header, [_details_line(row) for row in rows])


def _details_line(row: Row) -> list[str]:
    error = "" if row.name == REFERENCE else f"{row.error:.0e}"
    return [
        row.work,
        row.name,
        f"{row.seconds * 1e3:,.1f}",
        f"{row.num_tokens / row.seconds:,.0f}",
        f"{row.ratio:.2f}",
        f"{row.utilization:.0%}",
        error,
        f"{row.first_of_reference / row.first:.2f}",
    ]
