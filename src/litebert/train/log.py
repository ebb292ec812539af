"""Report a run's progress: lines on stderr, rows in metrics.jsonl, and whoever else listens to the rows."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from litebert.errors import LitebertError, counted, say, show_status
from litebert.files import Json
from litebert.nn import Network
from litebert.runs import DAMAGED_FILE, append_row, require_run, sync_metrics, truncate_after
from litebert.tasks.base import Measure
from litebert.tokenizer import Tokenizer
from litebert.train.run import Interruption, write_model

FIRST_LINE_SECONDS, LATER_LINE_SECONDS = 4.0, 30.0
"""The longest silence before the first line of progress, and between later ones."""
STATUS_SECONDS = 0.2
"""The time between two updates of the progress bar."""


class Listener(Protocol):
    """Receives every row, as TensorBoard does."""

    def row(self, row: dict[str, Json]) -> None:
        """Take one row of metrics.jsonl."""


@dataclass
class RunLog:
    """Write rows and lines; the time of training and evaluation is measured here.

    Of several processes only the first writes. `measures` say how a line abbreviates a measure. The time left is that
    of the remaining steps and evaluations: `cost(first, last)` is the relative time of steps, the same for all by
    default; a run by the clock `ends` at a time of `time.monotonic`.
    """

    folder: Path
    total_steps: int
    is_quiet: bool = False
    listeners: tuple[Listener, ...] = ()
    is_first: bool = True
    measures: tuple[Measure, ...] = ()
    eval_every: int = 1 << 40
    cost: Callable[[int, int], float] = lambda first, last: last - first
    ends: float | None = None
    evaluation_seconds: float = 0.0
    _since: float = field(default_factory=time.perf_counter)
    _pace: float = 0.0  # seconds per unit of cost
    _last_step: int = 0
    _printed: float = field(default_factory=time.perf_counter)
    _patience: float = FIRST_LINE_SECONDS
    _drawn: float = 0.0

    def resume_at(self, step: int) -> None:
        """Drop the rows after `step`, which will be written again; restart the clock."""
        for row in truncate_after(self.folder, step) if self.is_first else ():
            self.say(f"line {row.line} of metrics.jsonl is damaged, moved to {DAMAGED_FILE}")
        self._since, self._last_step = time.perf_counter(), step

    def begin(self, step: int, total_steps: int) -> None:
        """Report that training begins, before the first step."""
        self.total_steps = total_steps
        self._since = time.perf_counter()
        threads = torch.get_num_threads()
        self.say(f"training from step {step:,} of {total_steps:,} on {counted(threads, 'thread')}")

    def advance(self, step: int, total_steps: int) -> None:
        """Count a step: update the progress bar, or print a line after a long silence."""
        self.total_steps = total_steps
        now = time.perf_counter()
        is_live = sys.stderr.isatty() and not self.is_quiet
        is_due = now - self._drawn > STATUS_SECONDS if is_live else now - self._printed > self._patience
        if not is_due or step <= self._last_step:
            return
        pace = (now - self._since) / self.cost(max(0, self._last_step), step)
        line = f"step {step}/{total_steps}  left {self._left(step, pace)}  {memory_bytes() / 2**30:.1f} GB"
        if is_live:
            self._drawn = now
            show_status(step, total_steps, line)
        else:
            self.say(line)
            self._patience = LATER_LINE_SECONDS

    def training(self, step: int, tokens: int, measures: dict[str, float], rates: dict[str, float]) -> None:
        """Report the steps since the last report: their mean losses, and how fast they went."""
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        pace = seconds / max(1e-9, self.cost(max(0, self._last_step), step))
        self._pace = 0.7 * self._pace + 0.3 * pace if self._pace else pace
        self._last_step = step
        speed = tokens / max(seconds, 1e-9)
        row: dict[str, Json] = {"kind": "train", "step": step, **measures, **rates}
        self._record({**row, "tokens": tokens, "tokens_per_second": round(speed, 1)})
        self.say(
            f"step {step:>{len(str(self.total_steps))}}/{self.total_steps}  {self._words(measures)}  "
            f"lr {rates['learning_rate']:.2e}  {speed:,.0f} tok/s  left {self._left(step, self._pace)}  "
            f"{memory_bytes() / 2**30:.1f} GB"
        )

    def evaluation(self, step: int, evaluate: Callable[[], dict[str, float]]) -> None:
        """Evaluate on held-out data and report it; the time it takes is not counted as training."""
        begun = time.perf_counter()
        measures = evaluate()
        self._record({"kind": "eval", "step": step, **measures})
        self.say(f"held out at {step}  {self._words(measures)}")
        if unknown := [name for name, value in measures.items() if not math.isfinite(value)]:
            self.note(step, f"not finite at step {step}: {', '.join(unknown)}")
        self.evaluation_seconds = time.perf_counter() - begun
        self._since += self.evaluation_seconds

    def note(self, step: int, text: str, *, is_warning: bool = False) -> None:
        """Report an event, such as a skipped step; a warning in a quiet run, too."""
        self._record({"kind": "note", "step": step, "text": text})
        (self.warn if is_warning else self.say)(text)

    def warn(self, text: str) -> None:
        """Say what nobody may miss, such as a damaged checkpoint: in a quiet run, too."""
        if self.is_first:
            say(text)

    def say(self, text: str) -> None:
        """Print a line for people."""
        self._printed = time.perf_counter()
        if not self.is_quiet:
            self.warn(text)

    def sync(self) -> None:
        """Make the rows written so far survive a power cut."""
        if self.is_first:
            sync_metrics(self.folder)

    def _record(self, row: dict[str, Json]) -> None:
        if not self.is_first:
            return
        require_run(self.folder)
        append_row(self.folder, row)
        for listener in self.listeners:
            listener.row(row)

    def _left(self, step: int, pace: float) -> str:
        if self.ends is not None:
            return duration(max(0.0, self.ends - time.monotonic()))
        # one evaluation at each multiple of eval_every, and one at the end
        evaluations = (self.total_steps - 1) // self.eval_every - step // self.eval_every + 1
        seconds = pace * self.cost(step, self.total_steps) + max(0, evaluations) * self.evaluation_seconds
        return duration(max(0.0, seconds))

    def _words(self, measures: dict[str, float]) -> str:
        """Abbreviate the measures of pretraining; name the first few of any other task in full."""
        short = [m.short.format(measures[m.name]) for m in self.measures if m.short and m.name in measures]
        return " ".join(short or [f"{name} {value:.4g}" for name, value in list(measures.items())[:5]])


def memory_bytes() -> int:
    """Return this process's peak memory in bytes: that of the GPU if it is used, else resident."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1_024  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def duration(seconds: float) -> str:
    """Write a time span for people.

    >>> duration(75), duration(7_260), duration(500_000), duration(4e9)
    ('1m15s', '2h01m', '5.8 days', '127 years')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24 * 730:
        return f"{hours / 24 / 365.25:,.0f} years"
    if hours >= 100:
        return f"{hours / 24:,.1f} days"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


# Listeners


@dataclass
class BestModel:
    """Write the network to `folder` whenever the key measure improves; ties keep the earlier step.

    With `patience`, that many evaluations in a row without improvement stop the run, as a signal does.
    """

    folder: Path
    key_measure: str
    network: Network
    tokenizer: Tokenizer
    interruption: Interruption
    patience: int | None = None
    value: float = -math.inf
    step: int = 0
    _since: int = 0

    def row(self, row: dict[str, Json], *, is_written: bool = False) -> None:
        """Take one row of metrics.jsonl; the best model of a resumed run `is_written` already."""
        value, step = row.get(self.key_measure), row["step"]
        if row["kind"] != "eval":
            return
        self._since += 1
        if isinstance(value, int | float) and isinstance(step, int) and math.isfinite(value) and value > self.value:
            self.value, self.step, self._since = float(value), step, 0
            if not is_written:
                write_model(self.folder, self.network, self.tokenizer)
        self.interruption.has_stalled = self.patience is not None and self._since >= self.patience


class TensorBoard:
    """Write every number of every row as a scalar `<kind>/<name>` (extra: litebert[track])."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            what, next_step = "TensorBoard is not installed", "pip install 'litebert[track]'"
            raise LitebertError("LB-502", what, received=str(error), next=next_step) from error
        self._writer = SummaryWriter(str(folder))

    def row(self, row: dict[str, Json]) -> None:
        """Add the numbers of one row."""
        for name, value in row.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{row['kind']}/{name}", value, row["step"])
        self._writer.flush()
