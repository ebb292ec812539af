"""The progress of a build, read from its folder, so that it includes workers on other machines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from litebert.corpus.manifest import HELD_OUT, PARTS
from litebert.corpus.npy import HEADER_BYTES

SECONDS_BETWEEN = 1.0


@dataclass(frozen=True)
class BuildProgress:
    """The progress of a build; `tokens` are of the whole build, the rate is of this process.

    `share` is the share of the input's bytes that have been read.
    """

    parts_done: int
    num_parts: int
    tokens: int
    tokens_per_second: float
    share: float

    @property
    def seconds_left(self) -> float | None:
        """An estimate of the seconds left; None until something has been read."""
        if not self.share or not self.tokens_per_second:
            return None
        return self.tokens * (1 / self.share - 1) / self.tokens_per_second


Report = Callable[[BuildProgress], None]


@contextmanager
def reported(output: Path, *, part_sizes: Sequence[int], token_bytes: int, report: Report | None) -> Iterator[None]:
    """Call `report` once per second, from a thread, and once at the end of the block.

    `part_sizes` are the bytes of each part's inputs.
    """
    if report is None:
        yield
        return
    meter = _Meter(output, part_sizes, token_bytes, time.monotonic())
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
    part_sizes: Sequence[int]
    token_bytes: int
    started: float

    def look(self, tokens_before: int) -> BuildProgress:
        done = {int(path.stem) for path in (self.output / PARTS).glob("*.json")}
        tokens = self._tokens()
        rate = (tokens - tokens_before) / max(time.monotonic() - self.started, 1e-9)
        read = sum(size if part in done else self._bytes_read(part) for part, size in enumerate(self.part_sizes))
        share = read / (sum(self.part_sizes) or 1)
        return BuildProgress(len(done), len(self.part_sizes), tokens, rate, min(share, 1.0))

    def _bytes_read(self, part: int) -> int:
        try:
            return int((self.output / PARTS / f"{part:05d}.read").read_text(encoding="utf-8"))
        except FileNotFoundError:  # its first batch is not done
            return 0

    def _tokens(self) -> int:
        """Count tokens by file sizes, including shards that are still being written."""
        folders = (self.output, self.output / HELD_OUT)
        found = (path for folder in folders for path in folder.glob("shard-*/tokens.npy"))
        return sum(map(self._tokens_in, found))

    def _tokens_in(self, path: Path) -> int:
        try:
            return max(path.stat().st_size - HEADER_BYTES, 0) // self.token_bytes
        except FileNotFoundError:  # renamed since it was listed
            return 0
