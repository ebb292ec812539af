"""Measure memory: what Python allocates in a block, and the peak of a whole process."""

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
import re, sys
from pathlib import Path
used = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
"""


def run_in_child(code: str, *words: object) -> list[str]:
    """Run code in a child process and return the words it prints; it may call `used()`, the peak memory in bytes."""
    command = [sys.executable, "-c", USED + code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.split()
