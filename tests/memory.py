"""Limits on memory: of what Python takes in a block, and of all that a process has taken."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


USED = """
import re, sys, time
from pathlib import Path
used = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
"""


def in_a_child(code: str, *words: object) -> list[str]:
    """Run code that may ask for `used()`, the most bytes taken so far; return the words that it prints."""
    command = [sys.executable, "-c", USED + code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.split()
