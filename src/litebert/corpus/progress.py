"""The progress of a build, read from its folder, so that it includes workers on other
machines.

Each part writes `parts/PPPPP.progress`, the bytes that it has read and the tokens that
it has made, and `parts/PPPPP.json` when it is done.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from litebert import files
from litebert.corpus import shards as disk

SECONDS_BETWEEN = 1.0  # between notes of how much has been read, and between reports


class BuildProgress(NamedTuple):
    """The progress of a build; `tokens` counts the whole build, the rate only this
    process.
    """

    parts_done: int
    num_parts: int
    tokens: int
    tokens_per_second: float
    seconds_left: float | None  # an estimate, once something has been read


Report: TypeAlias = Callable[[BuildProgress], None]


class PartProgress:
    """Notes of one part, at most one per second."""

    def __init__(self, record: Path, num_sources: int) -> None:
        self.bytes_read = [0] * num_sources  # of each source, set while it is read
        self._path = record.with_suffix(".progress")
        self._noted = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self._noted >= SECONDS_BETWEEN

    def note(self, num_tokens: int) -> None:
        num_bytes = sum(self.bytes_read)
        files.write_json(self._path, {"bytes": num_bytes, "tokens": num_tokens})
        self._noted = time.monotonic()


@contextmanager
def report_progress(
    output: Path, num_parts: int, num_bytes: int, report: Report | None
) -> Iterator[None]:
    """Call `report` once per second, from a thread, and once at the end of the
    block.
    """
    if report is None:
        yield
        return
    parts = output / disk.PARTS
    tokens_before, _ = _read_notes(parts)
    started = time.monotonic()
    done = threading.Event()

    def read_progress() -> BuildProgress:
        tokens, bytes_read = _read_notes(parts)
        seconds = max(time.monotonic() - started, 1e-9)
        rate = (tokens - tokens_before) / seconds
        seconds_left = None
        if bytes_read and rate:
            share_left = max(num_bytes / bytes_read - 1, 0)  # of what has been read
            seconds_left = tokens * share_left / rate
        num_done = len(list(parts.glob("*.json")))
        return BuildProgress(num_done, num_parts, tokens, rate, seconds_left)

    def run() -> None:
        while not done.wait(SECONDS_BETWEEN):
            report(read_progress())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    report(read_progress())


def _read_notes(parts: Path) -> tuple[int, int]:
    """Return the tokens and the bytes of all parts so far."""
    tokens = 0
    bytes_read = 0
    for path in parts.glob("*.progress"):
        note = json.loads(path.read_bytes())
        tokens += note["tokens"]
        bytes_read += note["bytes"]
    return tokens, bytes_read
