"""Run the tests as on other kinds of machine: `make test-machines`, or `python -m
tests.machines NAME...` for some of them.

The environment makes torch, oneDNN, MKL and the C library compute as on another CPU,
and takes away what a developer's machine has. Every machine runs the tests in a random
order; its seed is printed. As a plugin of pytest this module does the shuffling.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

AVX2 = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4",
}
AVX512 = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "avx512"}
BARE = {"HOME": "", "LC_ALL": "C", "LITEBERT_TEST_DATA": "/nowhere"}
MACHINES: dict[str, dict[str, str]] = {
    "all-1": {"OMP_NUM_THREADS": "1"},
    "all-2": {"OMP_NUM_THREADS": "2"},
    "avx512-1": {**AVX512, "OMP_NUM_THREADS": "1"},
    "avx512-2": {**AVX512, "OMP_NUM_THREADS": "2"},
    "avx2-1": {**AVX2, "OMP_NUM_THREADS": "1"},
    "avx2-2": {**AVX2, "OMP_NUM_THREADS": "2"},
    "mkl": {"MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"},
    "bare": {**BARE, "OMP_NUM_THREADS": "1"},
    "busy": {"OMP_NUM_THREADS": "1"},
}
"""The environment of each machine; an empty value removes the variable."""

BUSY_PROCESSES = 4
ORDER = "LITEBERT_TEST_ORDER"
MARKERS = "not slow and not tensorflow and not browser"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the files, and the tests of each file, by the seed."""
    draws = random.Random(os.environ[ORDER])
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.location[0], []).append(item)
    files = sorted(by_file)
    draws.shuffle(files)
    items.clear()
    for file in files:
        tests = by_file[file]
        draws.shuffle(tests)
        items.extend(tests)


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep this many processes computing until the block ends."""
    with ExitStack() as stack:
        for _ in range(number):
            command = [sys.executable, "-c", "while True: pass"]
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
        yield


def run(name: str, seed: int) -> int:
    """Run the tests as on this machine, and return pytest's exit code."""
    environment = {**os.environ, **MACHINES[name], ORDER: str(seed), "PYTHONPATH": "."}
    environment = {key: value for key, value in environment.items() if value}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", MARKERS]
    print(f"---- {name}, order {seed}", flush=True)
    with busy(BUSY_PROCESSES if name == "busy" else 0):
        return subprocess.run(
            [*command, "-p", "tests.machines"], env=environment, check=False
        ).returncode


def main() -> None:
    draws = random.Random()
    failed = []
    for name in sys.argv[1:] or MACHINES:
        if run(name, draws.randrange(10**6)):
            failed.append(name)
    if failed:
        raise SystemExit(f"failed as on: {', '.join(failed)}")


if __name__ == "__main__":
    main()
