"""What a run will do and need, printed before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape

from litebert.files import Json
from litebert.report.table import TableRow
from litebert.train.estimate import Estimate
from litebert.train.log import duration


@dataclass(frozen=True)
class RunPlan:
    """A run that has not begun: lines for people, and the numbers behind them."""

    lines: Mapping[str, str]
    values: TableRow
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Write a line for each fact."""
        width = max(map(len, self.lines), default=0)
        facts = [f"{name:<{width}}  {text}" for name, text in self.lines.items()]
        return "\n".join([*facts, *(f"{'note':<{width}}  {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(n)}</th><td>{escape(t)}</td></tr>" for n, t in self.lines.items())
        return f"<table>{''.join(rows)}</table>"


def needs_in_words(needs: Estimate, steps: int) -> dict[str, str]:
    """Say what a run needs of this machine."""
    return {
        "memory": f"{needs.memory_bytes / 2**30:.2f} GiB",
        "disk": f"{needs.disk_bytes / 2**30:.2f} GiB",
        "time": f"{duration(needs.seconds(steps))} on this machine, without evaluations",
    }


def processes_in_words(needs: Estimate, size: int, batch_size: int) -> dict[str, str]:
    """Say what each of several processes holds and sends; nothing for a single process.

    In a ring all-reduce of n processes, each sends 2 (n - 1) / n of the gradients (Patarasuk and
    Yuan, 2009).
    """
    if size == 1:
        return {}
    gradients = 4 * needs.num_parameters
    sent = 2 * (size - 1) / size * gradients
    return {
        "processes": f"{size}; each holds all weights, gradients and moments "
        f"({4 * gradients / 1e6:,.0f} MB) and {_share(batch_size, size)} of {batch_size:,} "
        "sequences of a step",
        "network": f"{gradients / 1e6:,.1f} MB of gradients a step; each process sends and "
        f"receives {sent / 1e6:,.1f} MB",
    }


def _share(batch_size: int, size: int) -> str:
    low, high = batch_size // size, -(-batch_size // size)
    return f"{low:,}" if low == high else f"{low:,} or {high:,}"


def needs_in_numbers(needs: Estimate, steps: int) -> dict[str, Json]:
    """Return what a run needs of this machine."""
    return {**asdict(needs), "steps": steps, "seconds": needs.seconds(steps)}
