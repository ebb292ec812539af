"""A run while it is trained: its lock, and signals as requests to stop."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from litebert import files, runs
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.system import (
    HANGUP,
    STOP_SIGNALS,
    Handler,
    end_on_next_signal,
    handled,
    unignored,
)


@dataclass
class Session:
    """A run being trained: where, by which processes, since when, and whether it should
    stop after the current step.
    """

    folder: Path
    world: World = ALONE
    begun: float = field(default_factory=time.monotonic)
    signal_number: int = 0  # of the signal that requested a stop; 0: none
    parent: int = field(default_factory=os.getppid)  # under torchrun, its process

    def should_stop(self) -> bool:
        """Return whether any process got a signal; processes of torchrun also stop when
        torchrun is gone.
        """
        # A process whose parent has died gets another one.
        if "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != self.parent:
            self.signal_number = self.signal_number or HANGUP
        # Summed over all processes, so that all stop after the same step.
        return self.world.totals(self.signal_number)[0] > 0

    def exit_code(self) -> int:
        """Return the exit code of a run stopped before its last step: 128 + the signal
        of a process, or 0.
        """
        # Only one of the processes may have got the signal: all end with its code.
        number = max(self.world.gather(self.signal_number))
        return 128 + number if number else 0


@contextmanager
def session(folder: Path, world: World = ALONE) -> Iterator[Session]:
    """Lock the folder of a run, remove what a killed process left in it, and treat a
    signal as a request to stop.
    """

    def busy() -> LitebertError:
        return LitebertError(
            "LB-504",
            f"another process is training in {folder}",
            received=runs.holder_of(folder),
            next="wait for it, stop it, or choose another --name",
        )

    opened = Session(folder, world)
    # Only the first process writes, so only that one takes the lock.
    if not world.is_first:
        with _stop_on_signals(opened):
            yield opened
        return
    runs.require_run_folder(folder)
    with files.locked(folder, busy), _stop_on_signals(opened):
        runs.claim(folder)
        # folders and files that a killed process was writing under temporary names
        for place in (folder, folder / "checkpoints", folder / runs.ANSWERS):
            files.clear_stale(place)
        yield opened


@contextmanager
def _stop_on_signals(session: Session) -> Iterator[None]:
    """Note a signal in the session instead of ending the process.

    A second signal has its usual, immediate effect, but not with several processes:
    their launcher forwards signals that they have already received, and kills them in
    the end. Outside the main thread no handlers are set, because Python does not allow
    it.
    """
    previous = dict[int, Handler]()
    if threading.current_thread() is threading.main_thread():
        previous = unignored(STOP_SIGNALS)

    def request(number: int) -> None:
        session.signal_number = number  # the loop looks at it after each step
        if session.world.size == 1:
            end_on_next_signal(previous)

    with handled(dict.fromkeys(previous, request)):
        yield
