"""A thread in each process that tells the others it lives, and ends the process when one is lost.

Each process looks after the next one alone, so the traffic is the same for 2 and for 512. Without
this, a process that hangs would hold all others in a sum for half an hour.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from dataclasses import dataclass, field

from torch.distributed import Store  # type: ignore[attr-defined]

from litebert.errors import LitebertError, ResourceError

BEAT_SECONDS = 2.0
SILENT_SECONDS = 30.0
"""A process that has not beaten for so long is lost."""
JOIN_SECONDS = 5.0
"""The longest wait for the last beat: the store may be gone."""
_FAILED = "failed"


@dataclass
class Heartbeat:
    """Beat in the background from `start` to `stop`."""

    store: Store
    rank: int
    size: int
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _beats: int = 0
    _parent: int = field(default_factory=os.getppid)
    _seen: bytes = b""
    _seen_at: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """Begin to beat."""
        self._beat()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop beating: the run is over.

        A thread that is in the store while Python ends would abort the process.
        """
        self._stopped.set()
        if self._thread:
            self._thread.join(JOIN_SECONDS)

    def fail(self, error: BaseException) -> None:
        """Tell the other processes why this one ends."""
        what = error.what if isinstance(error, LitebertError) else type(error).__name__
        self._tell(f"process {self.rank} on {socket.gethostname()} has stopped: {what}")
        self.stop()

    def _tell(self, what: str) -> None:
        try:
            self.store.set(_FAILED, what)
        except RuntimeError:  # the store went with the process that held it: others see that
            return

    def _run(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            try:
                problem = self._beat()
            except RuntimeError as error:
                problem = f"the store of the run is gone: {str(error).splitlines()[0]}"
            # at the end of a run the store goes first: wait for this process's own end
            if problem and not self._stopped.wait(1.0):
                self._end(problem)

    def _beat(self) -> str:
        """Beat once; return what is wrong, or nothing."""
        self._beats += 1
        self.store.set(f"beat/{self.rank}", str(self._beats))
        if self.store.check([_FAILED]):
            return str(self.store.get(_FAILED).decode())
        if "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != self._parent:
            return "the launcher of this process is gone"
        return self._look_at_next()

    def _look_at_next(self) -> str:
        other, now = (self.rank + 1) % self.size, time.monotonic()
        key = f"beat/{other}"
        beat = self.store.get(key) if self.store.check([key]) else b""
        if beat != self._seen:
            self._seen, self._seen_at = beat, now
        if now - self._seen_at < SILENT_SECONDS:
            return ""
        problem = f"process {other} has been silent for {now - self._seen_at:.0f} seconds"
        self._tell(problem)
        return problem

    def _end(self, problem: str) -> None:
        error = ResourceError(
            "LB-260",
            "this process stops, because another one of its run is lost",
            received=problem,
            expected="all processes of the run, until its end",
            next="rerun the command to resume from the last checkpoint",
        )
        print(error, file=sys.stderr, flush=True)
        os._exit(error.exit_code)  # the main thread may wait in a sum that nobody completes
