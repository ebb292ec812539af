"""The script for a day on a GPU, rehearsed without one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_day import Part, _run


def _day(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_day", "--rehearse", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("part", ["parity", "serving"])
def test_a_part_of_the_day_passes_on_the_cpu(part: str, tmp_path: Path) -> None:
    done = _day("--part", part, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_whole_day_is_rehearsed(tmp_path: Path) -> None:
    waiting = "import time; print('began', flush=True); time.sleep(600)"
    done = _day(
        *("--out", str(tmp_path), "--minutes", "8"),
        *("--then", sys.executable, "-c", waiting),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "gpu-day.json").read_text("utf-8"))
    names = [part["name"] for part in record["parts"]]
    assert names == ["parity", "rates", "fine-tuning", "serving", "tests", "then"]
    assert "GEMM" in (tmp_path / "gpu-day.md").read_text("utf-8")


def test_a_part_that_hangs_is_stopped_and_one_that_is_meant_to_run_on_passes(
    tmp_path: Path,
) -> None:
    waiting = [sys.executable, "-c", "import time; time.sleep(60)"]
    hanging = _run(Part("hanging", waiting, 1), 1, tmp_path)
    assert hanging.code is None
    resumable = _run(Part("words", waiting, 1, is_stopped=True), 1, tmp_path)
    assert resumable.code == 0
    failing = _run(Part("failing", [sys.executable, "-c", "1/0"], 30), 30, tmp_path)
    assert failing.code == 1
    assert "ZeroDivisionError" in failing.last_lines[-1]
