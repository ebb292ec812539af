"""The processors and memory of a container, and how threads wait: with the files of a
system, and with a real control group.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.cpu import (
    Processors,
    explain_threads,
    find_memory_limit,
    find_processors,
    share_processors,
    usable_memory,
)

# ---- the files of a system -----------------------------------------------------------


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


VERSION_2 = {
    "proc/self/cgroup": "0::/user.slice/run-7.scope\n",
    "proc/self/mountinfo": (
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    ),
    "sys/fs/cgroup/user.slice/run-7.scope/cpu.max": "max 100000\n",
    "sys/fs/cgroup/user.slice/run-7.scope/memory.max": "max\n",
}
# in a container without a namespace of its own: paths are those of the whole machine
VERSION_1 = {
    "proc/self/cgroup": (
        "5:memory:/docker/ab12\n4:cpu,cpuacct:/docker/ab12\n1:name=systemd:/\n0::/\n"
    ),
    "proc/self/mountinfo": (
        "32 31 0:29 /docker/ab12 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup"
        " rw,cpu,cpuacct\n"
        "35 31 0:32 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "36 31 0:33 / /data rw - ext4 /dev/sda1 rw\n"
    ),
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
}
SCOPE = "sys/fs/cgroup/user.slice/run-7.scope"
QUOTAS = {
    "version 2": (VERSION_2, {f"{SCOPE}/cpu.max": "150000 100000\n"}, 1.5),
    "version 2, in the group around it": (
        VERSION_2,
        {
            f"{SCOPE}/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/user.slice/cpu.max": "25000 50000\n",
        },
        0.5,
    ),
    "version 2, at the top of a container": (
        {**VERSION_2, "proc/self/cgroup": "0::/\n"},
        {"sys/fs/cgroup/cpu.max": "200000 100000\n"},
        2.0,
    ),
    "version 1": (
        VERSION_1,
        {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000\n"},
        3.0,
    ),
    "a group that the container does not see": (
        {**VERSION_2, "proc/self/cgroup": "0::/../../other\n"},
        {"sys/fs/cgroup/cpu.max": "100000 100000\n"},
        1.0,
    ),
    "no limit, version 2": (VERSION_2, {}, None),
    "no limit, version 1": (VERSION_1, {}, None),
    "a file that is not a limit": (VERSION_2, {f"{SCOPE}/cpu.max": "soon\n"}, None),
}


@pytest.mark.parametrize("case", QUOTAS)
def test_the_quota_is_the_smallest_of_the_groups_around_a_process(
    case: str, tmp_path: Path
) -> None:
    system, changed, quota = QUOTAS[case]
    assert find_processors(write(tmp_path, {**system, **changed})).quota == quota


def test_a_system_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    assert find_processors(tmp_path).quota is None
    assert find_memory_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("quota", "usable"), [(None, 8), (0.2, 1), (1.0, 1), (1.5, 2), (8.0, 8), (64.0, 8)]
)
def test_threads_follow_affinity_and_quota(quota: float | None, usable: int) -> None:
    assert Processors(installed=64, allowed=8, quota=quota).usable == usable


def test_the_memory_limit_is_the_smallest_of_the_groups(tmp_path: Path) -> None:
    two = write(
        tmp_path / "2",
        {
            **VERSION_2,
            f"{SCOPE}/memory.max": f"{8 << 30}\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{2 << 30}\n",
        },
    )
    assert find_memory_limit(two) == usable_memory(two) == 2 << 30
    one = write(tmp_path / "1", VERSION_1)
    assert find_memory_limit(one) is None
    write(one, {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{1 << 30}\n"})
    assert usable_memory(one) == 1 << 30


# ---- before torch is loaded ----------------------------------------------------------


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    quarter = {f"{SCOPE}/cpu.max": "25000 100000\n"}
    root = write(tmp_path, {**VERSION_2, **quarter})
    for chosen in (
        {"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "active"},
        {"MKL_NUM_THREADS": "7", "GOMP_SPINCOUNT": "5"},
    ):
        environment = dict(chosen)
        share_processors(environment, root)
        assert environment == chosen


def test_waiting_threads_sleep_soon_and_keep_within_the_quota(tmp_path: Path) -> None:
    environment = dict[str, str]()
    share_processors(environment, write(tmp_path, VERSION_2))
    assert environment["GOMP_SPINCOUNT"] == "2000"
    # no quota: torch counts processors itself
    assert "OMP_NUM_THREADS" not in environment
    allowed = find_processors(tmp_path).allowed
    write(tmp_path, {f"{SCOPE}/cpu.max": f"{100_000 * allowed - 100_001} 100000\n"})
    if allowed == 1:
        pytest.skip("one processor cannot be limited further")
    share_processors(environment, tmp_path)
    assert int(environment["OMP_NUM_THREADS"]) == max(1, allowed - 1)


REASONS = {
    "one for each processor": (8, {}, Processors(8, 8, None)),
    "this process may use 4 of 8 processors": (4, {}, Processors(8, 4, None)),
    "the container's quota: 1.5 of 8 processors": (
        2,
        {"OMP_NUM_THREADS": "2"},
        Processors(8, 8, 1.5),
    ),
    "OMP_NUM_THREADS": (3, {"OMP_NUM_THREADS": "3"}, Processors(8, 8, 4.0)),
    "of 8 processors": (1, {}, Processors(8, 8, None)),
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_number_of_threads_has_a_reason(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, environment, processors = REASONS[reason]
    monkeypatch.setattr("litebert.cpu.find_processors", lambda _: processors)
    assert explain_threads(number, environment) == f"{number} ({reason})"


# ---- real processes ------------------------------------------------------------------


def run(code: str, **environment: str) -> str:
    """Run Python in a process without settings of OpenMP; return its last line."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMP_", "GOMP_", "MKL_", "KMP_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()[-1]


SHOWN = "import torch\ntorch.ones(9).sum()"  # libgomp has read its settings


def test_libgomp_is_told_to_let_threads_sleep_soon() -> None:
    show = {"OMP_DISPLAY_ENV": "verbose"}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    seen = subprocess.run(
        [sys.executable, "-c", f"import litebert\n{SHOWN}"],
        env={**clean, **show},
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    if "GOMP_SPINCOUNT" not in seen:
        pytest.skip("this torch runs its threads with another library")
    assert "GOMP_SPINCOUNT = '2000'" in seen.replace("[host] ", "")


QUOTA_GROUP = Path("/sys/fs/cgroup/cpu")


def test_a_real_quota_lowers_the_threads_of_torch() -> None:
    """A process joins a control group with half a processor, then imports litebert,
    before or after torch.
    """
    group = QUOTA_GROUP / f"litebert-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("50000")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    join = f"open('{group}/cgroup.procs', 'w').write('0')\n"
    ask = "print(torch.get_num_threads(), cpu.find_processors().quota)"
    try:
        for order in ("import torch, litebert\n", "import litebert, torch\n"):
            printed = run(f"{join}{order}from litebert import cpu\n{ask}")
            assert printed == "1 0.5"
    finally:
        group.rmdir()
