"""The overview of any run: whether it is finished, how long it trained and how fast."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from litebert.report.markup import Html
from litebert.runs import Record, finite


@dataclass(frozen=True)
class Content:
    """The content of a page: its title, its overview, and its sections in order."""

    name: str
    kind: str
    status: str
    facts: Mapping[str, str]
    sections: tuple[Html, ...]
    sources: str


def status(record: Record) -> str:
    """Say in one sentence whether the run is finished."""
    if record.has_model:
        return f"Finished after {record.step:,} steps."
    if record.step == 0:
        return "Not finished: no training step was logged yet."
    return f"Not finished: step {record.step:,} of {record.setting('train.steps')}. There is no model yet."


def effort(record: Record) -> dict[str, str]:
    """Return what training took; unknown figures are omitted."""
    from litebert.train.log import duration  # torch comes with it

    speeds = finite(record.training, "tokens_per_second")
    values = {
        "Tokens seen": _tokens(record.tokens) if record.tokens else "",
        "Time, evaluations not counted": duration(record.seconds) if record.seconds else "",
        "Median speed": f"{statistics.median(speeds):,.0f} tokens/s" if speeds else "",
        "Notes": f"{len(record.notes):,}, listed below" if record.notes else "",
    }
    return {name: value for name, value in values.items() if value}


def report_line(folder: Path) -> str:
    """Return the command that writes a page again."""
    return f"litebert report {shlex.quote(str(folder))}"


def _tokens(count: int) -> str:
    """Write a number of tokens.

    >>> _tokens(4_224), _tokens(78_012_345), _tokens(2_600_000_000)
    ('4,224', '78.0 million', '2.60 billion')
    """
    if count < 100_000:
        return f"{count:,}"
    return f"{count / 1e9:,.2f} billion" if count >= 1e9 else f"{count / 1e6:,.1f} million"
