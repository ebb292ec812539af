"""A thread in each process that reports it is alive, and ends it when another process is lost.

Each process monitors only the next one, so its traffic is the same for 2 and for 512 processes.
Without it, one process that hangs would block all others in an all-reduce for half an hour.
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
"""A process whose last heartbeat is older than this counts as lost."""
JOIN_SECONDS = 5.0
"""How long `stop` waits for the last heartbeat: the store may be gone."""
_FAILED = "failed"


@dataclass
class Heartbeat:
    """Send heartbeats in the background from `start` to `stop`."""

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
        """Send the first heartbeat and start the thread."""
        self._beat()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread: the run is over.

        A thread inside the store while Python shuts down would abort the process.
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
        except RuntimeError:  # the store is gone with the process that held it
            return

    def _run(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            try:
                problem = self._beat()
            except RuntimeError as error:
                problem = f"the store of the run is gone: {str(error).splitlines()[0]}"
            # at the end of a run the store closes first: let this process end by itself
            if problem and not self._stopped.wait(1.0):
                self._end(problem)

    def _beat(self) -> str:
        """Send one heartbeat; return what is wrong, or an empty string."""
        self._beats += 1
        self.store.set(f"beat/{self.rank}", str(self._beats))
        if self.store.check([_FAILED]):
            return str(self.store.get(_FAILED).decode())
        if "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != self._parent:
            return "the launcher of this process is gone"
        return self._check_next()

    def _check_next(self) -> str:
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
            "this process stops: another process of its run is lost",
            received=problem,
            expected="all processes of the run, until its end",
            next="rerun the command to resume from the last checkpoint",
        )
        print(error, file=sys.stderr, flush=True)
        os._exit(error.exit_code)  # the main thread may be blocked in an all-reduce that never completes
