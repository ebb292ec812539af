"""The pace of a run by the clock on a CPU that it shares: the number of threads is
chosen again when steps become much slower, and the end says how little of the machine
the run got.

A run of a given number of steps keeps its threads, because their number decides in
which order sums are rounded.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from statistics import median

import torch

from litebert.train.log import RunLog

WATCHED = 8  # steps whose median is the pace
COLLAPSED = 2.0  # this many times the best pace of the run
TRIED = 4  # steps with each number of threads; the first of them warms up
# Steps until fewer threads are compared with all of them again: the machine may be
# quiet by then.
PATIENCE = 400
# of the time of the processors that it uses: a run that got less says so
SMALL_SHARE = 1 / 3


class Pace:
    """Watches the seconds of a run's steps, and tries other numbers of threads."""

    def __init__(
        self,
        log: RunLog,
        choices: Iterable[int],
        set_threads: Callable[[int], None] = torch.set_num_threads,
    ) -> None:
        self.threads = torch.get_num_threads()
        self._log = log
        self._choices = sorted({self.threads, *choices})
        self._set_threads = set_threads
        self._recent = deque[float](maxlen=WATCHED)
        self._best = 0.0  # seconds; 0 before it is known
        self._steps = 0  # since the last choice
        # the seconds of the steps of a trial, by the number of threads
        self._trial: dict[int, list[float]] = {}
        self._has_said = False
        self._begun = time.monotonic()
        self._begun_computing = time.process_time()

    def count(self, step: int, seconds: float) -> None:
        """Count a step; begin a trial if the pace has collapsed, and end it."""
        if self._trial:
            self._continue_trial(step, seconds)
            return
        self._steps += 1
        self._recent.append(seconds)
        if len(self._recent) < WATCHED or len(self._choices) == 1:
            return
        pace = median(self._recent)
        self._best = min(self._best or pace, pace)
        has_collapsed = pace > COLLAPSED * self._best
        may_recover = self.threads < self._choices[-1] and self._steps >= PATIENCE
        if has_collapsed or may_recover:
            self._trial = {number: [] for number in self._choices}
            self._set_threads(self._choices[0])

    def conclude(self, step: int) -> None:
        """Say at the end of the run if it got little of its processors' time."""
        elapsed = time.monotonic() - self._begun
        computed = time.process_time() - self._begun_computing
        share = computed / max(1e-9, elapsed * self.threads)
        if share >= SMALL_SHARE:
            return
        processors = "a processor"
        if self.threads > 1:
            processors = f"{self.threads} processors"
        text = (
            f"the machine was busy: this run got {share:.0%} of the time of"
            f" {processors}, so it made only {step:,} steps; for a better model, run it"
            " when the machine is quiet, or for longer"
        )
        self._log.note(step, text, is_warning=True)

    def _continue_trial(self, step: int, seconds: float) -> None:
        """Count a step of a trial, in which the numbers of threads take turns."""
        # the number with the fewest steps so far, the first of several, had its turn
        turn = min(self._trial, key=lambda number: len(self._trial[number]))
        self._trial[turn].append(seconds)
        following = min(self._trial, key=lambda number: len(self._trial[number]))
        if len(self._trial[following]) < TRIED:
            self._set_threads(following)
            return
        self._choose(step)

    def _choose(self, step: int) -> None:
        """End a trial: go on with the fastest number of threads."""
        paces = {number: median(taken[1:]) for number, taken in self._trial.items()}
        before = self.threads
        self.threads = min(paces, key=lambda number: paces[number])
        self._set_threads(self.threads)
        self._best = paces[self.threads]
        self._recent.clear()
        self._steps = 0
        self._trial = {}
        if self.threads == before or self._has_said:
            return
        self._has_said = True
        ratio = paces[before] / paces[self.threads]
        text = (
            f"steps became much slower, so the run goes on with {self.threads} instead"
            f" of {before} threads: now {ratio:.1f} times as fast"
        )
        self._log.note(step, text)
