"""Progress of a long call: a live bar on a terminal, plain lines elsewhere, always on stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from litebert.errors import say

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

FIRST_LINE, BETWEEN_LINES = 3.0, 10.0
"""Seconds before the first plain line, and between later ones."""


class Progress:
    """Show how many items are done; `advance` is cheap enough to call for every item."""

    def __init__(self, unit: str, title: str, *, total: int | None = None, is_quiet: bool = False) -> None:
        self._unit, self._title, self._total = unit, title, total
        self._is_quiet, self._done = is_quiet, 0
        self._started = time.monotonic()
        self._next_line = self._started + FIRST_LINE
        self._bar: Bar | None = None

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not self._is_quiet:
            say(text)

    def advance(self, number: int = 1) -> None:
        """Count items that are done."""
        self._done += number
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], advance=number)
        elif not self._is_quiet and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + BETWEEN_LINES
            self.say(self._line())

    def __enter__(self) -> Self:
        """Begin: on a terminal, show the bar."""
        if not self._is_quiet and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.add_task(self._title, total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End: leave the bar as it stands."""
        if self._bar is not None:
            self._bar.stop()

    def _line(self) -> str:
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        known = f"/{self._total:,}" if self._total is not None else ""
        from litebert.train.log import duration

        left = ""
        if self._total is not None and rate:
            left = f"  left {duration((self._total - self._done) / rate)}"
        return f"{self._title}  {self._done:,}{known} {self._unit}  {rate:,.0f}/s{left}"


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True))
