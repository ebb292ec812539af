"""How long a run is: a number of steps, or of minutes by the clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from litebert.distributed.world import ALONE, World
from litebert.files import Json, read_json, write_json

CLOCK_FILE = "clock.json"
MIN_STEPS = 20
"""A run by the clock takes at least this many steps."""
LOOKS = 50
"""The most times that the clock is compared with the plan."""
RECENT = 10
"""Comparisons whose mean pace is expected of the remaining steps."""


@dataclass(frozen=True)
class FixedSteps:
    """A run with a fixed number of steps; it does not depend on the clock."""

    steps: int
    ends: None = None

    def position(self, step: int) -> int:
        """Return the step of the schedule that this step corresponds to: itself."""
        return step

    def is_last(self, step: int) -> bool:
        """Return whether the run is over after this many steps."""
        return step >= self.steps

    def total(self, _: int) -> int:
        """Return how many steps the run has."""
        return self.steps

    def look(self, _: int, __: float) -> None:
        """Do nothing; a run by the clock looks at it here."""

    def record(self) -> None:
        """Write nothing: the number of steps is a setting."""


class Knot(BaseModel):
    """From `step` on, each step advances the schedule from `position` by `stride`."""

    step: int = 0
    position: float = 0.0
    stride: float = 1.0


class Clock(BaseModel):
    """clock.json: the time spent so far, and every change of the stride."""

    seconds: float = 0.0
    knots: list[Knot] = [Knot()]


@dataclass
class Minutes:
    """A run that ends on time, however fast the machine is.

    The schedule is planned for `planned` steps. After every 2 % of the time the stride through it
    is adjusted, so that the schedule ends when the time is up: warm-up, plateau and decay keep
    their shares of the time. Each stride is written to disk before use: a resumed run repeats them.
    """

    folder: Path
    seconds: float
    planned: int
    begun: float
    now: Callable[[], float] = time.monotonic
    clock: Clock = field(default_factory=Clock)
    world: World = ALONE
    _seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))

    @classmethod
    def open(cls, folder: Path, *, minutes: float, planned: int, begun: float, world: World = ALONE) -> Minutes:
        """Continue the clock of a run, or start one; all processes use the first one's clock."""

        def read() -> Json:
            path = folder / CLOCK_FILE
            return read_json(path, command=f"ls {folder}") if path.exists() else {}

        clock = Clock.model_validate(world.from_first(read))
        begun = world.of_first(begun) - clock.seconds
        return cls(folder, minutes * 60, planned, begun, clock=clock, world=world)

    @property
    def ends(self) -> float:
        """When the time is up."""
        return self.begun + self.seconds

    def position(self, step: int) -> int:
        """Return the step of the schedule that this step corresponds to."""
        return min(self.planned - 1, int(self._position(step)))

    def is_last(self, step: int) -> bool:
        """Return whether the schedule has ended."""
        return step >= self.total(step)

    def total(self, step: int) -> int:
        """Return the step at which the schedule ends with the stride at `step`."""
        knot = self._knot(step)
        return knot.step + max(1, round((self.planned - knot.position) / knot.stride))

    def look(self, step: int, seconds_to_end: float) -> None:
        """Adjust the stride after 2 % of the time, by the pace of the last 20 %; the end of a run takes time, too."""
        now = self.world.of_first(self.now())
        if not self._seen:
            self._seen.append((now, step))
        (since, first), (latest, _) = self._seen[0], self._seen[-1]
        is_repeated = step <= self.clock.knots[-1].step
        if self.is_last(step) or is_repeated or step == first or now - latest < self.seconds / LOOKS:
            return
        self._seen.append((now, step))
        # The rest of the plan is spread over the steps that fit the rest of the time.
        left = self.seconds - (now - self.begun) - self.world.of_first(seconds_to_end)
        steps = max(1, MIN_STEPS - step, round(left * (step - first) / (now - since)))
        position = self._position(step)
        self.clock.knots.append(Knot(step=step, position=position, stride=(self.planned - position) / steps))
        self.record()

    def record(self) -> None:
        """Write the time spent and the strides to clock.json."""
        self.clock.seconds = self.world.of_first(self.now()) - self.begun
        if self.world.is_first:
            write_json(self.folder / CLOCK_FILE, self.clock.model_dump(mode="json"))

    def _position(self, step: int) -> float:
        knot = self._knot(step)
        return knot.position + (step - knot.step) * knot.stride

    def _knot(self, step: int) -> Knot:
        return next(knot for knot in reversed(self.clock.knots) if knot.step <= step)
