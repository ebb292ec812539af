"""Report a run's progress: lines on stderr, rows in metrics.jsonl, TensorBoard if configured."""

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

from litebert.files import Json
from litebert.runs.metrics import DAMAGED_FILE, append_row, sync_metrics, truncate_after
from litebert.runs.run import require_run
from litebert.terminal import counted, say, show_status

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

    Of several processes only the first writes.
    """

    folder: Path
    total_steps: int
    is_quiet: bool = False
    listeners: tuple[Listener, ...] = ()
    is_first: bool = True
    evaluation_seconds: float = 0.0
    _since: float = field(default_factory=time.perf_counter)
    _pace: float = 0.0
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
        pace = (now - self._since) / (step - max(0, self._last_step))
        left = duration(pace * (total_steps - step))
        line = f"step {step}/{total_steps}  left {left}  {memory_bytes() / 2**30:.1f} GB"
        if is_live:
            self._drawn = now
            show_status(step, total_steps, line)
        else:
            self.say(line)
            self._patience = LATER_LINE_SECONDS

    def sync(self) -> None:
        """Make the rows written so far survive a power cut."""
        if self.is_first:
            sync_metrics(self.folder)

    def training(self, step: int, tokens: int, measures: dict[str, float], rates: dict[str, float]) -> None:
        """Report the steps since the last report: their mean losses, and how fast they went."""
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        pace = seconds / max(1, step - self._last_step)
        self._pace = 0.7 * self._pace + 0.3 * pace if self._pace else pace
        self._last_step = step
        row: dict[str, Json] = {"kind": "train", "step": step, **measures, **rates}
        speed = tokens / max(seconds, 1e-9)
        self._record({**row, "tokens": tokens, "tokens_per_second": round(speed, 1)})
        left = self._pace * (self.total_steps - step)
        self.say(
            f"step {step:>{len(str(self.total_steps))}}/{self.total_steps}  "
            f"{_words(measures)}  lr {rates['learning_rate']:.2e}  "
            f"{speed:,.0f} tok/s  left {duration(left)}  {memory_bytes() / 2**30:.1f} GB"
        )

    def evaluation(self, step: int, evaluate: Callable[[], dict[str, float]]) -> None:
        """Evaluate on held-out data and report it; the time it takes is not counted as training."""
        begun = time.perf_counter()
        measures = evaluate()
        self._record({"kind": "eval", "step": step, **measures})
        self.say(f"held out at {step}  {_words(measures)}")
        if unknown := [name for name, value in measures.items() if not math.isfinite(value)]:
            self.note(step, f"not finite at step {step}: {', '.join(unknown)}")
        self.evaluation_seconds = time.perf_counter() - begun
        self._since += self.evaluation_seconds

    def note(self, step: int, text: str) -> None:
        """Report an event, such as a skipped step or a damaged checkpoint."""
        self._record({"kind": "note", "step": step, "text": text})
        self.say(text)

    def say(self, text: str) -> None:
        """Print a line for people."""
        self._printed = time.perf_counter()
        if self.is_first and not self.is_quiet:
            say(text)

    def _record(self, row: dict[str, Json]) -> None:
        if not self.is_first:
            return
        require_run(self.folder)
        append_row(self.folder, row)
        for listener in self.listeners:
            listener.row(row)


def memory_bytes() -> int:
    """Return this process's peak memory in bytes: that of the GPU if it is used, else resident."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def duration(seconds: float) -> str:
    """Write a time span for people.

    >>> duration(75), duration(7_260)
    ('1m15s', '2h01m')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


_SHORT = {
    "masked_lm_loss": "mlm {:.3f}",
    "masked_lm_accuracy": "acc {:.1%}",
    "mask_token_accuracy": "[MASK] {:.1%}",
    "sentence_order_loss": "sop {:.3f}",
    "sentence_order_accuracy": "acc {:.1%}",
    "hidden_error": "hidden {:.3f}",
    "vector_error": "vectors {:.3f}",
}


def _words(measures: dict[str, float]) -> str:
    """Abbreviate the measures of pretraining; name the first few of any other task in full."""
    short = [text.format(measures[n]) for n, text in _SHORT.items() if n in measures]
    return " ".join(short or [f"{n} {value:.4g}" for n, value in list(measures.items())[:5]])
