"""What a run reports while it trains: rows in metrics.jsonl, and lines or a progress bar
on stderr.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from litebert import files, runs
from litebert.config import TrainConfig
from litebert.device import Device
from litebert.errors import (
    LitebertError,
    format_count,
    format_duration,
    is_terminal,
    say,
    show_status,
)
from litebert.files import Json
from litebert.folder.storage import Start
from litebert.tasks.heads import pretraining_measures
from litebert.train.session import Session

# the longest silence before the first and a later line of progress
FIRST_LINE_SECONDS = 4.0
LATER_LINE_SECONDS = 30.0
STATUS_SECONDS = 0.2  # between two updates of the progress bar
# between two lines of training, at least; metrics.jsonl has a row for each report
PAUSE_SECONDS = 5.0
MOST_MEASURES = 5  # in a line of fine-tuning
SMOOTHING = 0.7  # the weight of the former pace


@dataclass
class RunLog:
    """Writes rows and lines in the first process, and measures the time of training and
    evaluation.
    """

    session: Session
    train: TrainConfig
    device: Device
    is_quiet: bool = False
    # of the forward and the backward pass; None: unknown
    flops_per_token: float | None = None
    # time.monotonic() at the end of a run by the clock, whose number of steps is an
    # estimate
    ends: float | None = None
    evaluation_seconds: float = 0.0  # of the last one
    total_steps: int = 0
    tokens: int = 0  # since the last report, or the beginning
    # held-out measures of a fine-tuning without any learning
    baseline: Mapping[str, float] = field(default_factory=dict)
    # the last report, or the beginning, and its step
    _since: float = field(default_factory=time.monotonic)
    _last_step: int = 0
    _pace: float = 0.0  # seconds per step, smoothed
    # the last line or bar, and the longest silence after it
    _shown: float = field(default_factory=time.monotonic)
    _patience: float = FIRST_LINE_SECONDS
    _reported: float = -math.inf  # when a line of training was shown
    _evaluated: str = ""  # the measures of the last evaluation, in words

    # ---- what the loop reports ---------------------------------------------------

    def begin(self, step: int, total_steps: int) -> None:
        """Report that training begins or resumes after `step`; drop the rows of later
        steps: they will be redone.
        """
        if self.session.world.is_first:
            damaged = runs.truncate_after(self.session.folder, step or -1)
            for line in damaged:
                self.say(
                    f"line {line} of metrics.jsonl is damaged, moved to"
                    f" {runs.DAMAGED_FILE}"
                )
        self._since = time.monotonic()
        self._last_step = step
        self.total_steps = total_steps
        verb = "resuming" if step else "training"
        threads = format_count(torch.get_num_threads(), "thread")
        self.say(f"{verb} from step {step:,} of {total_steps:,} on {threads}")

    def advance(self, step: int, total_steps: int) -> None:
        """Count a step: update the progress bar, or print a line after a long
        silence.
        """
        self.total_steps = total_steps
        now = time.monotonic()
        is_live = is_terminal() and not self.is_quiet
        silence = STATUS_SECONDS if is_live else self._patience
        if step == self._last_step or now - self._shown <= silence:
            return
        # of the steps since the last report
        pace = (now - self._since) / (step - self._last_step)  # seconds per step
        left = self._left(step, pace)
        line = f"step {step}/{total_steps}  left {left}  {self._memory()}"
        if is_live:
            self._shown = now
            show_status(step, total_steps, line)
        else:
            self.say(line)
            self._patience = LATER_LINE_SECONDS

    def training(
        self,
        step: int,
        tokens: int,
        measures: dict[str, float],
        rates: dict[str, float],
    ) -> None:
        """Report the steps since the last report: their mean losses and their speed.

        `tokens` are those of these steps, in all processes; `rates` has the learning
        rate and the norm of the gradients.
        """
        now = time.monotonic()
        seconds = max(now - self._since, 1e-9)
        pace = self._smoothed(seconds / max(1, step - self._last_step))
        # Not by `tokens`: a run that was resumed has not read all of them itself.
        speed = self.tokens / seconds
        self._since = now
        self._last_step = step
        self.tokens = 0

        counts = {"tokens": tokens, "tokens_per_second": round(speed, 1)}
        of_peak = ""
        share = self._utilization(speed)
        if share is not None:
            counts["mfu"] = round(share, 4)
            of_peak = f"  MFU {share:.1%}"
        self._record({"kind": "train", "step": step, **measures, **rates, **counts})
        if step < self.total_steps and now - self._reported < PAUSE_SECONDS:
            return
        self._reported = now
        width = len(str(self.total_steps))  # so that the lines are aligned
        parts = (
            f"step {step:>{width}}/{self.total_steps}",
            self._words(measures),
            f"lr {rates['learning_rate']:.2e}",
            f"{speed:,.0f} tok/s{of_peak}",
            f"left {self._left(step, pace)}",
            self._memory(),
        )
        self.say("  ".join(parts))

    def evaluation(self, step: int, evaluate: Callable[[], dict[str, float]]) -> None:
        """Evaluate on held-out data and report it, with a line unless that would say
        the same again; the time it takes is not counted as training.
        """
        begun = time.monotonic()
        measures = evaluate()
        self._record({"kind": "eval", "step": step, **measures})
        words = self._words(measures, with_baseline=True)
        if words != self._evaluated or step >= self.total_steps:
            self.say(f"step {step}, held out: {words}")
        self._evaluated = words
        unknown = [name for name in measures if not math.isfinite(measures[name])]
        if unknown:
            self.note(step, f"not finite at step {step}: {', '.join(unknown)}")
        self.evaluation_seconds = time.monotonic() - begun
        # As if the clock had stood still: the speed is that of training.
        self._since += self.evaluation_seconds

    def note(self, step: int, text: str, *, is_warning: bool = False) -> None:
        """Report an event, such as a skipped step."""
        self._record({"kind": "note", "step": step, "text": text})
        self.say(text, is_warning=is_warning)

    def say(self, text: str, *, is_warning: bool = False) -> None:
        """Print a line for people; a quiet run prints only warnings, such as that of a
        damaged checkpoint.
        """
        self._shown = time.monotonic()
        if self.session.world.is_first and (is_warning or not self.is_quiet):
            say(text)

    def _record(self, row: dict[str, Json]) -> None:
        """Append a row to metrics.jsonl; only the first process writes."""
        folder = self.session.folder
        if not self.session.world.is_first:
            return
        if not runs.is_run(folder):
            raise LitebertError(
                "LB-543",
                f"{folder} was deleted or moved while its run was running",
                next="run the same command again: it starts afresh, or resumes a"
                " restored folder",
            )
        files.append_line(folder / runs.METRICS_FILE, runs.line_of(row))

    # ---- speed, time and memory --------------------------------------------------

    def _smoothed(self, pace: float) -> float:
        """Return the running mean of the seconds per step: other programs on the
        machine come and go.
        """
        if self._pace:
            self._pace = SMOOTHING * self._pace + (1 - SMOOTHING) * pace
        else:
            self._pace = pace
        return self._pace

    def _utilization(self, tokens_per_second: float) -> float | None:
        """Return the model FLOP utilization: the share of the peak in half precision,
        over all processes; None where either is unknown.
        """
        peak = self.device.peak_flops
        if peak is None or self.flops_per_token is None:
            return None
        flops = tokens_per_second * self.flops_per_token  # per second
        return flops / (peak * self.session.world.size)

    def _left(self, step: int, pace: float) -> str:
        """Return the time to the end; a run by the clock may need more than its time
        for the fewest steps of a run.
        """
        seconds = pace * (self.total_steps - step)
        if self.ends is None:
            seconds += self._evaluations_left(step) * self.evaluation_seconds
        else:
            # Steps and evaluations fill the time, whatever their pace is.
            by_clock = self.ends - time.monotonic()
            if by_clock > 0:
                seconds = by_clock
        return format_duration(seconds) if seconds >= 1 else "<1s"

    def _evaluations_left(self, step: int) -> int:
        """Return how many evaluations follow: after every `eval_every` steps, and after
        the last one.
        """
        every = self.train.eval_every
        before_last = (self.train.steps - 1) // every - step // every
        return before_last + 1

    def _memory(self) -> str:
        """Return the peak of the memory that this process has used."""
        return f"{self.device.peak_bytes() / 2**30:.1f} GB"

    # ---- measures in words -------------------------------------------------------

    def _words(self, measures: dict[str, float], *, with_baseline: bool = False) -> str:
        """Return measures for a line; a held-out one beside its value without any
        learning.
        """
        words = self._pretraining_words(measures, with_baseline)
        if not words:
            words = self._task_words(measures, with_baseline)
        return ", ".join(words)

    def _pretraining_words(
        self, measures: dict[str, float], with_baseline: bool
    ) -> list[str]:
        """Return the measures that heads of pretraining declare, with their units."""
        words = list[str]()
        for measure in pretraining_measures():
            if not measure.short or measure.name not in measures:
                continue
            text = measure.short.format(measures[measure.name])
            chance = measure.chance
            if isinstance(chance, str):  # the name of the measure that has it
                chance = measures.get(chance)
            if with_baseline and chance is not None:
                text += f" ({chance:.1%} without learning)"
            words.append(text)
        return words

    def _task_words(self, measures: dict[str, float], with_baseline: bool) -> list[str]:
        """Return the first measures of a fine-tuning; the words `without learning` are
        written once.
        """
        words = list[str]()
        explanation = " without learning"
        for name in list(measures)[:MOST_MEASURES]:
            text = f"{name} {measures[name]:.4g}"
            if with_baseline and name in self.baseline:
                text += f" ({self.baseline[name]:.4g}{explanation})"
                explanation = ""
            words.append(text)
        return words


def say_start(log: RunLog, start: Start) -> None:
    """Say which modules are new and which are left out; the parameters of one module
    are one entry.
    """
    new = _modules_of(start.fresh)
    if new:
        log.say(f"new, not pretrained: {', '.join(new)}")
    unused = _modules_of(start.dropped)
    if unused:
        log.say(f"not used from the start model: {', '.join(unused)}")
    for note in start.notes:
        log.say(f"note: {note}")


def _modules_of(parameters: Iterable[str]) -> list[str]:
    return sorted({name.rpartition(".")[0] for name in parameters})
