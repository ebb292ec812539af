"""Wait for processes, servers and threads, with one deadline.

What takes a second on a quiet machine can take a minute on a busy one. So a test waits
until something has happened, and only a wait that is far longer than any machine needs
is a failure. No test asserts how many seconds a wait took.
"""

import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DEADLINE = 300.0  # seconds


def wait_until(
    holds: Callable[[], object],
    *,
    describe: Callable[[], object] = lambda: "it did not happen",
) -> None:
    """Wait until a condition holds; after the deadline fail, and say what `describe`
    returns.
    """
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, describe()
        time.sleep(0.01)


def exit_code(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> int:
    """Wait for the end of a process."""
    return process.wait(DEADLINE)


def assert_ends(pidfd: int) -> None:
    """Wait for the end of a process that is not a child of this one."""
    ended, _, _ = select.select([pidfd], [], [], DEADLINE)
    assert ended, "the process is still running"


@contextmanager
def ends_quickly() -> Iterator[None]:
    """Assert that a block does bounded work: at most half a minute of CPU time, which
    is a hundred times what it needs.
    """
    begin = time.process_time()
    yield
    assert time.process_time() - begin < 30
