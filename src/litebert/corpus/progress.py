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
        self._bytes_read = [0] * num_sources  # of each source
        self._path = record.with_suffix(".progress")
        self._noted = time.monotonic()

    def has_read(self, source: int, num_bytes: int) -> None:
        """Set how many bytes of a source have been read, while it is read."""
        self._bytes_read[source] = num_bytes

    def is_due(self) -> bool:
        """Return whether the last note is old enough for another one."""
        return time.monotonic() - self._noted >= SECONDS_BETWEEN

    def note(self, num_tokens: int) -> None:
        """Write what this part has read and made so far."""
        num_bytes = sum(self._bytes_read)
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
    meter = _Meter(output / disk.PARTS, num_parts, num_bytes)
    is_done = threading.Event()
    thread = threading.Thread(
        target=_report_every_second, args=(meter, report, is_done), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
    report(meter.read())


def _report_every_second(
    meter: "_Meter", report: Report, is_done: threading.Event
) -> None:
    while not is_done.wait(SECONDS_BETWEEN):
        report(meter.read())


class _Meter:
    """Measures the progress of a build since this process began."""

    def __init__(self, parts: Path, num_parts: int, num_bytes: int) -> None:
        self._parts = parts
        self._num_parts = num_parts
        self._num_bytes = num_bytes  # of all inputs
        # of a build that was killed: this process has not made them
        self._tokens_before = _Notes.read(parts).tokens
        self._started = time.monotonic()

    def read(self) -> BuildProgress:
        """Read the notes of all parts."""
        notes = _Notes.read(self._parts)
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (notes.tokens - self._tokens_before) / seconds
        seconds_left = None
        if notes.bytes_read and rate:
            # Relative to what has been read. All parts have about as many tokens a byte,
            # so that the rate of tokens is that of bytes.
            share_left = max(self._num_bytes / notes.bytes_read - 1, 0)
            seconds_left = notes.tokens * share_left / rate
        num_done = len(list(self._parts.glob("*.json")))
        return BuildProgress(
            num_done, self._num_parts, notes.tokens, rate, seconds_left
        )


class _Notes(NamedTuple):
    """What all parts have read and made so far."""

    tokens: int
    bytes_read: int

    @classmethod
    def read(cls, parts: Path) -> "_Notes":
        tokens = 0
        bytes_read = 0
        for path in parts.glob("*.progress"):
            note = json.loads(path.read_bytes())
            tokens += note["tokens"]
            bytes_read += note["bytes"]
        return cls(tokens, bytes_read)
