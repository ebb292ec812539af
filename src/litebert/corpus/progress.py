"""How far a build is, read off its folder, so that it holds for local and for distant workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from litebert.corpus.manifest import HELD_OUT, PARTS
from litebert.corpus.npy import HEADER_BYTES

SECONDS_BETWEEN = 1.0


@dataclass(frozen=True)
class BuildProgress:
    """Say how far a build is; tokens count from its start, the rate from that of this run."""

    parts_done: int
    num_parts: int
    tokens: int
    tokens_per_second: float


Report = Callable[[BuildProgress], None]


@contextmanager
def reported(
    output: Path, *, num_parts: int, token_bytes: int, report: Report | None
) -> Iterator[None]:
    """Call `report` once a second, from a thread of its own, and once at the end of the block."""
    if report is None:
        yield
        return
    meter = _Meter(output, num_parts, token_bytes, time.monotonic())
    first = meter.look(0)
    done = threading.Event()

    def run() -> None:
        while not done.wait(SECONDS_BETWEEN):
            report(meter.look(first.tokens))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    report(meter.look(first.tokens))


@dataclass(frozen=True)
class _Meter:
    output: Path
    num_parts: int
    token_bytes: int
    started: float

    def look(self, tokens_before: int) -> BuildProgress:
        tokens = sum(map(self._tokens, (self.output, self.output / HELD_OUT)))
        seconds = max(time.monotonic() - self.started, 1e-9)
        done = len(list((self.output / PARTS).glob("*.json")))
        rate = (tokens - tokens_before) / seconds
        return BuildProgress(done, self.num_parts, tokens, rate)

    def _tokens(self, folder: Path) -> int:
        """Count from file sizes; a shard still being written counts as far as it is."""
        return sum(map(self._tokens_in, folder.glob("shard-*/tokens.npy")))

    def _tokens_in(self, path: Path) -> int:
        try:
            return max(path.stat().st_size - HEADER_BYTES, 0) // self.token_bytes
        except FileNotFoundError:  # renamed since it was listed
            return 0
