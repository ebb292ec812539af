"""End a run after its current step, with a checkpoint, on Ctrl-C, SIGTERM, SIGUSR1 or SIGHUP."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class Stopping(Protocol):
    """Tells whether a run should end before its last step."""

    @property
    def is_requested(self) -> bool:
        """Whether the run should stop after this step."""


@dataclass
class Interruption:
    """Whether the run should stop, and by which signal."""

    signal_number: int | None = None
    parent: int = field(default_factory=os.getppid)

    @property
    def is_requested(self) -> bool:
        """Whether the run should stop after this step; torchrun's processes also stop when it is gone."""
        if "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != self.parent:
            self.signal_number = self.signal_number or signal.SIGHUP
        return self.signal_number is not None

    @property
    def exit_code(self) -> int:
        """The exit code for the shell: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + (self.signal_number or 0)


@contextmanager
def interruptible(*, may_force: bool = True) -> Iterator[Interruption]:
    """Treat the first signal as a request to stop; the second has its usual, immediate effect.

    Without `may_force` a second signal changes nothing: a launcher forwards signals that its
    processes have received already, and kills them in the end. An ignored signal, such as SIGHUP
    under nohup, stays ignored. Outside the main thread Python allows no handlers; none are set.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    previous = {n: handler for n, handler in handlers.items() if handler is not signal.SIG_IGN}

    def request(number: int, _: FrameType | None) -> None:
        interruption.signal_number = number
        for each in previous if may_force else ():
            signal.signal(each, signal.SIG_DFL)

    try:
        for number in previous:
            signal.signal(number, request)
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
