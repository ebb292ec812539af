"""What differs between operating systems: signals, memory, open files.

Linux and macOS have all of it. Windows has no `resource` module and few signals; what it
lacks is left out, and everything else works. Nothing else in litebert names a signal that
Windows lacks, nor imports a module that it lacks; a test of style checks this.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


# ---- signals -------------------------------------------------------------------------

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int
"""What a process does on a signal: a function, SIG_DFL or SIG_IGN."""


def existing_signals(*names: str) -> tuple[int, ...]:
    """Return those signals that this system has.

    >>> existing_signals("SIGINT", "SIGNONSENSE") == (signal.SIGINT,)
    True
    """
    return tuple(int(getattr(signal, name)) for name in names if hasattr(signal, name))


# Signals that ask a run to stop after its step. SIGBREAK is Ctrl-Break, on Windows.
STOP_SIGNALS = existing_signals("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP", "SIGBREAK")
# Signals that ask a server to finish what it has accepted and to end.
END_SIGNALS = existing_signals("SIGINT", "SIGTERM", "SIGBREAK")
# The signal that asks a server to read its models again; none on Windows.
RELOAD_SIGNALS = existing_signals("SIGHUP")
# A terminal or a launcher that goes away: the number for exit codes, also on Windows.
HANGUP = 1
# A reader of standard output that goes away: the number for exit codes, also on Windows.
BROKEN_PIPE = 13


def unignored(numbers: Iterable[int]) -> dict[int, Handler]:
    """Return the present handlers of signals, without those signals that must stay
    ignored, such as SIGHUP under nohup.

    A handler that was set outside Python, by a program that embeds it, is left alone as
    well: Python cannot set it again.
    """
    handlers = dict[int, Handler]()
    for number in numbers:
        handler = signal.getsignal(number)
        if handler is not None and handler != signal.SIG_IGN:
            handlers[number] = handler
    return handlers


def end_on_next_signal(previous: Mapping[int, Handler]) -> None:
    """Let the next signal end the process at once, now that the first was taken as a
    request; `previous` has the handlers from before litebert set its own.

    In a Python session, such as a notebook, Ctrl-C raises KeyboardInterrupt again: the
    session keeps its variables.
    """
    for number, handler in previous.items():
        if handler is signal.default_int_handler:
            signal.signal(number, handler)
        else:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def handled(handlers: Mapping[int, Callable[[int], object]]) -> Iterator[None]:
    """Handle signals by number during a block, then as before; a handler that was set
    outside Python is left alone.

    `loop.add_signal_handler` of asyncio does not exist on Windows. A signal that another
    thread receives waits until the main thread runs Python code again; uvicorn does so
    ten times a second.
    """

    def handle(number: int, _: FrameType | None) -> None:
        handlers[number](number)

    previous = dict[int, Handler]()
    try:
        for number in handlers:
            handler = signal.getsignal(number)
            if handler is not None:
                previous[number] = handler
                signal.signal(number, handle)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def truncated_a_mapped_file(exit_code: int | None) -> bool:
    """Return whether a process ended because a memory-mapped file became shorter."""
    return exit_code in [-number for number in existing_signals("SIGBUS")]


def is_stopped(process: int) -> bool:
    """Return whether a process is stopped by a signal; False where only Linux knows.

    Linux tells T, stopped by a signal, from S, which may be a slow disk or network.
    """
    try:
        stat = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    state = stat.rpartition(")")[2].split()[0]
    return state == "T"


# ---- memory and open files -----------------------------------------------------------


def installed_memory_bytes() -> int:
    """Return the memory of this machine; 0 if it is unknown."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kernel: Any = _kernel_of_windows()
    status = _MemoryStatus(size=ctypes.sizeof(_MemoryStatus))
    if kernel is None or not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        return 0
    return int(status.installed)


def limit_memory(size: int) -> None:
    """Let this process have so many bytes of memory at most, where the system can."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    is_free = hard == resource.RLIM_INFINITY
    limit = size if is_free else min(size, hard)
    with suppress(OSError, ValueError):  # macOS may refuse
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def peak_memory_bytes() -> int:
    """Return the largest resident memory of this process so far; 0 if it is unknown."""
    if resource is not None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        is_in_bytes = sys.platform == "darwin"  # Linux counts kilobytes
        return peak if is_in_bytes else peak * 1_024
    kernel: Any = _kernel_of_windows()
    if kernel is None:
        return 0
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    counters = _MemoryCounters(size=ctypes.sizeof(_MemoryCounters))
    kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.size)
    return int(counters.peak)


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("used_percent", ctypes.c_uint32),
        ("installed", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 6),
    )


class _MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of Windows."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("page_faults", ctypes.c_uint32),
        ("peak", ctypes.c_size_t),
        ("others", ctypes.c_size_t * 7),
    )


def _kernel_of_windows() -> object | None:
    """Return kernel32; the calls to it follow its documentation and were not tried."""
    return getattr(getattr(ctypes, "windll", None), "kernel32", None)


def allow_open_files(wanted: int) -> None:
    """Let this process open so many files at once, as far as the hard limit allows.

    Windows has no such limit for files that are mapped.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    is_free = hard == resource.RLIM_INFINITY
    limit = wanted if is_free else min(wanted, hard)
    # macOS announces no hard limit and has one
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
