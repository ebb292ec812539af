"""The clock of a run of a given time, which decides how far each step advances the
schedule.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from litebert.config import TrainConfig
from litebert.distributed import ALONE, World
from litebert.train.checkpoint import RunProgress
from litebert.train.session import Session

MIN_STEPS = 20  # the fewest of a run by the clock
# Comparisons of the clock with the plan in a run. The latest of them give the pace, so
# that it follows other programs that come and go.
LOOKS = 50
RECENT = 10


class Look(NamedTuple):
    """One comparison of the clock with the plan."""

    seconds_left: float
    step: int


@dataclass
class Clock:
    """Ends a run on time, however fast the machine is: a training step may advance the
    schedule by more or less than 1.

    This stride is adjusted after every 2 % of the time, so that the schedule ends when
    the time is up: warm-up, plateau and decay keep their shares of the time. All
    processes use the clock of the first.
    """

    seconds: float  # of the whole run
    planned: int  # steps of the schedule
    ends: float  # by `now`
    world: World = ALONE
    now: Callable[[], float] = time.monotonic
    # the latest looks; the pace is measured from the oldest of them
    _looks: deque[Look] = field(default_factory=lambda: deque(maxlen=RECENT))

    @classmethod
    def of_run(
        cls, settings: TrainConfig, session: Session, progress: RunProgress
    ) -> "Clock | None":
        """Return the clock of a run, which has already spent some of its time if it is
        resumed; None for a run of a number of steps.
        """
        if settings.minutes is None:
            return None
        seconds = 60 * settings.minutes
        end = session.begun + seconds - progress.seconds
        return cls(seconds, settings.steps, end, session.world)

    def adjust(self, progress: RunProgress, seconds_to_end: float) -> None:
        """Set the time spent, and the stride by the pace of the last 20 % of the time;
        keep `seconds_to_end` free.
        """
        look = Look(
            seconds_left=self.world.broadcast(self.ends - self.now()),
            step=progress.step,
        )
        # saved with a checkpoint: a resumed run has only the rest of the time
        progress.seconds = self.seconds - look.seconds_left
        if not self._looks:
            self._looks.append(look)
        oldest = self._looks[0]
        latest = self._looks[-1]
        is_too_early = latest.seconds_left - look.seconds_left < self.seconds / LOOKS
        if look.step == oldest.step or is_too_early:
            return
        self._looks.append(look)

        # What is left of the schedule is spread over the steps that fit the time.
        seconds = oldest.seconds_left - look.seconds_left
        pace = (look.step - oldest.step) / seconds  # steps per second
        seconds_for_steps = look.seconds_left - self.world.broadcast(seconds_to_end)
        num_steps = max(1, MIN_STEPS - look.step, round(seconds_for_steps * pace))
        progress.stride = (self.planned - progress.position) / num_steps
