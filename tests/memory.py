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


def peak_memory() -> int:
    """Return the most memory that this process has held at a time, in bytes."""
    status = Path("/proc/self/status").read_text()
    kilobytes = re.search(r"VmHWM:\s+(\d+)", status)[1]
    return int(kilobytes) * 1024


def forget_peak() -> None:
    """Let the peak start again from the memory that is held now."""
    Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Assert that neither Python nor the process, with what torch allocates, needs more
    bytes in this block.
    """
    require_proc()
    forget_peak()
    before = peak_memory()
    tracemalloc.start()
    try:
        yield
        _, peak_of_python = tracemalloc.get_traced_memory()
        assert peak_of_python < limit
        assert peak_memory() - before < limit
    finally:
        tracemalloc.stop()


FUNCTIONS = f"""
import re, sys
from pathlib import Path
{inspect.getsource(peak_memory)}
{inspect.getsource(forget_peak)}
"""


def run_in_child(code: str, *words: object) -> list[str]:
    """Run code in a child process and return the words it prints; it may call
    `peak_memory()` and `forget_peak()`.
    """
    require_proc()
    command = [sys.executable, "-c", FUNCTIONS + code, *map(str, words)]
    child = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=DEADLINE
    )
    return child.stdout.split()
