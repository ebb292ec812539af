"""Measure memory, as Linux counts it in /proc: what a block needs, and the peak of a
whole process. Where there is no /proc, tests of memory are skipped.
"""

import ctypes
import gc
import inspect
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import DEADLINE


def require_proc() -> None:
    """Skip the test on a machine without /proc."""
    if not Path("/proc/self/status").exists():
        pytest.skip("this machine has no /proc")


def return_free_memory() -> None:
    """Return what earlier tests freed to the system (glibc): what is allocated next then
    adds to the memory of the process.
    """
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def used() -> int:
    return (
        int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
        << 10
    )


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Assert that neither Python nor the process, with what torch allocates, needs more
    in this block.
    """
    require_proc()
    # used() starts again from the current memory
    Path("/proc/self/clear_refs").write_text("5")
    before = used()
    tracemalloc.start()
    try:
        yield
        assert max(tracemalloc.get_traced_memory()[1], used() - before) < limit
    finally:
        tracemalloc.stop()


USED = f"import re, sys\nfrom pathlib import Path\n{inspect.getsource(used)}"


def run_in_child(code: str, *words: object) -> list[str]:
    """Run code in a child process and return the words it prints; it may call `used()`,
    the peak memory in bytes.
    """
    require_proc()
    command = [sys.executable, "-c", USED + code, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=DEADLINE
    ).stdout.split()
