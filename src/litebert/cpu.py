"""The processors and the memory that this process may use, and how its threads wait.

A container with two processors on a machine of 64 sees 64: only the files of its
control group (cgroup) say how much of them it gets. torch does not read those files.

Nothing here loads torch, because libgomp, the library that runs torch's threads, reads
its settings once, when it is loaded.
"""

import math
import os
import sys
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from litebert.system import installed_memory_bytes

# Between two parallel loops, a thread of libgomp turns 300,000 times, which takes
# milliseconds, before it sleeps. On a busy machine it burns the time slice that the
# thread it waits for needs. Sleeping at once costs a quiet machine half of its speed for
# one short text. Two thousand turns lose little in either case (benchmarks/RESULTS.md).
WAIT_SETTINGS = {"GOMP_SPINCOUNT": "2000"}

# Any of these is the user's choice of how threads wait.
WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")

# Any of these is the user's choice of the number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

ROOT = Path("/")


# ---- what this process may use -------------------------------------------------------


@dataclass(frozen=True)
class Processors:
    """The processors of this machine, and how many of them this process may use."""

    installed: int
    allowed: int  # by the affinity of the process: taskset, cpusets, Slurm
    quota: float | None  # processors' worth of time that the container gets

    @property
    def usable(self) -> int:
        """The most threads that can be computing at once; at least one.

        A quota of 1.5 processors is used by two threads, each for three quarters of the
        time.
        """
        if self.quota is None:
            return self.allowed
        return max(1, min(self.allowed, math.ceil(self.quota)))

    @property
    def is_limited_by_quota(self) -> bool:
        """Whether the quota allows fewer threads than the affinity."""
        return self.usable < self.allowed


def find_processors(root: Path = ROOT) -> Processors:
    """Count the processors that this process may use; `root` has its proc and sys."""
    installed = os.cpu_count() or 1
    allowed = installed
    if hasattr(os, "sched_getaffinity"):  # Linux
        allowed = len(os.sched_getaffinity(0))
    quotas = [_quota(group) for group in control_groups(root)]
    limits = [quota for quota in quotas if quota is not None]
    return Processors(installed, allowed, min(limits, default=None))


def find_memory_limit(root: Path = ROOT) -> int | None:
    """Return the bytes that the container may use; None if there is no limit.

    >>> find_memory_limit(Path("/a-folder-without-proc")) is None
    True
    """
    limits = list[int]()
    for group in control_groups(root):
        # version 2, then version 1, which writes a number near 2^63 for no limit
        for name in ("memory.max", "memory.limit_in_bytes"):
            number = _read_number(group / name)
            if number is not None and number < 1 << 60:
                limits.append(number)
    return min(limits, default=None)


def usable_memory(root: Path = ROOT) -> int:
    """Return the bytes of memory that this process may use: the machine's, or fewer in
    a container; 0 if they are unknown.
    """
    installed = installed_memory_bytes()
    limit = find_memory_limit(root)
    if limit is None or not installed:
        return limit or installed
    return min(installed, limit)


# ---- control groups ------------------------------------------------------------------


def control_groups(root: Path = ROOT) -> Iterator[Path]:
    """Yield the folders of the control groups of this process and of all groups around
    them: each of them can have a limit.

    /proc/self/cgroup has a line per hierarchy, `4:cpu,cpuacct:/docker/ab12`, or with
    version 2 `0::/user.slice`. /proc/self/mountinfo says where each is mounted, and
    which of its groups is at the top there: inside a container, usually its own.
    """
    mounts = _mounts(root)
    for line in _read_lines(root / "proc/self/cgroup"):
        _, _, hierarchy = line.partition(":")
        controllers, _, path = hierarchy.partition(":")
        # the hierarchy of version 2 has no controllers here
        for controller in controllers.split(","):
            if controller in mounts:
                yield from mounts[controller].groups_of(path)


@dataclass(frozen=True)
class _Mount:
    """A hierarchy of control groups, as it is mounted."""

    top: str  # the group that is at its top there, such as /docker/ab12
    place: Path

    def groups_of(self, path: str) -> Iterator[Path]:
        """Yield the folder of a group, and those of the groups around it."""
        folder = self.place
        if path.startswith(self.top):
            folder = self.place / path.removeprefix(self.top).lstrip("/")
        # A group of which the container sees nothing is outside its mount.
        if not folder.is_dir() or ".." in folder.parts:
            folder = self.place
        while folder != self.place:
            yield folder
            folder = folder.parent
        yield self.place


def _mounts(root: Path) -> dict[str, _Mount]:
    """Return the mounted hierarchies by controller; that of version 2 has the key "".

    A line: `32 31 0:29 /docker/ab12 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu`.
    """
    mounts = dict[str, _Mount]()
    for line in _read_lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        top, place = before.split(" ")[3:5]
        mount = _Mount(top, root / place.lstrip("/"))
        controllers = [""]
        if kind == "cgroup":
            controllers = options.rpartition(" ")[2].split(",")
        for controller in controllers:
            mounts.setdefault(controller, mount)
    return mounts


def _quota(group: Path) -> float | None:
    """Return how many processors' worth of time a control group gets."""
    # version 2: "150000 100000", the microseconds of time in each period; or "max …"
    words = " ".join(_read_lines(group / "cpu.max")).split()
    if len(words) == 2 and words[0].isdecimal():
        return int(words[0]) / int(words[1])
    # version 1: -1 is no limit
    quota = _read_number(group / "cpu.cfs_quota_us")
    period = _read_number(group / "cpu.cfs_period_us")
    if quota is None or not period:
        return None
    return quota / period


def _read_number(path: Path) -> int | None:
    words = " ".join(_read_lines(path)).strip()
    if words.isdecimal():
        return int(words)
    return None


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file of the system; none if it is not there or may not be
    read.
    """
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


# ---- before torch is loaded ----------------------------------------------------------


def share_processors(
    environment: MutableMapping[str, str] = os.environ, root: Path = ROOT
) -> None:
    """Let waiting threads sleep soon, and keep their number within the container's
    quota.

    What the user has set stays as it is.
    """
    torch = sys.modules.get("torch")
    processors = find_processors(root)
    has_choice = any(name in environment for name in THREAD_VARIABLES)
    if processors.is_limited_by_quota and not has_choice:
        environment["OMP_NUM_THREADS"] = str(processors.usable)
        if torch is not None and torch.get_num_threads() > processors.usable:
            torch.set_num_threads(processors.usable)
    if not any(name in environment for name in WAIT_VARIABLES):
        environment.update(WAIT_SETTINGS)


def explain_threads(
    number: int,
    environment: MutableMapping[str, str] = os.environ,
    root: Path = ROOT,
) -> str:
    """Say how many threads compute, and why.

    >>> explain_threads(3, {"OMP_NUM_THREADS": "3"}, Path("/a-folder-without-proc"))
    '3 (OMP_NUM_THREADS)'
    """
    return f"{number} ({_reason(number, environment, find_processors(root))})"


def _reason(
    number: int, environment: MutableMapping[str, str], processors: Processors
) -> str:
    """Say what decides the number of threads: a quota, a variable, a setting, or the
    number of processors.
    """
    if processors.is_limited_by_quota and number == processors.usable:
        return (
            f"the container's quota: {processors.quota:g} of"
            f" {processors.installed} processors"
        )
    for name in THREAD_VARIABLES:
        if environment.get(name) == str(number):
            return name
    if number != processors.allowed:
        # for instance train.threads, --threads, torch.set_num_threads, or fewer cores
        # than processors
        return f"of {processors.allowed} processors"
    if processors.allowed < processors.installed:
        return (
            f"this process may use {processors.allowed} of"
            f" {processors.installed} processors"
        )
    return "one for each processor"
