"""How far a build is, read off its folder, so that it holds for local and for distant workers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from litebert.corpus.manifest import HELD_OUT, PARTS
from litebert.corpus.npy import HEADER_BYTES

SECONDS_BETWEEN = 1.0


@dataclass(frozen=True)
class BuildProgress:
    """Say how far a build is; tokens count from its start, the rate from that of this run.

    `finished_tokens` are those of the parts that are done.
    """

    parts_done: int
    num_parts: int
    tokens: int
    tokens_per_second: float
    finished_tokens: int

    @property
    def seconds_left(self) -> float | None:
        """What is left if all parts are like those done; None until the first is."""
        if not self.finished_tokens or not self.tokens_per_second:
            return None
        expected = self.finished_tokens / self.parts_done * self.num_parts
        return max(0.0, expected - self.tokens) / self.tokens_per_second


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
        done = {path.stem for path in (self.output / PARTS).glob("*.json")}
        tokens = self._tokens_by_part()
        total = sum(tokens.values())
        seconds = max(time.monotonic() - self.started, 1e-9)
        rate, finished = (total - tokens_before) / seconds, sum(tokens[part] for part in done)
        return BuildProgress(len(done), self.num_parts, total, rate, finished)

    def _tokens_by_part(self) -> Counter[str]:
        """Count from file sizes; a shard still being written counts as far as it is."""
        tokens: Counter[str] = Counter()
        for folder in (self.output, self.output / HELD_OUT):
            for path in folder.glob("shard-*/tokens.npy"):
                tokens[path.parent.name.split("-")[1]] += self._tokens_in(path)
        return tokens

    def _tokens_in(self, path: Path) -> int:
        try:
            return max(path.stat().st_size - HEADER_BYTES, 0) // self.token_bytes
        except FileNotFoundError:  # renamed since it was listed
            return 0
