"""benchmarks/gpu.py runs where there is no GPU, on few packages, and ends in time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run the benchmark on this CPU and return its rows."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--out", str(folder / "gpu"), "--device", "cpu"]
    command += ["--preset", "tiny", "--smoke", "--minutes", "60", *arguments]
    subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert (folder / "gpu.md").read_text("utf-8").startswith("# litebert on a GPU")
    rows: list[dict[str, Any]] = json.loads((folder / "gpu.json").read_text("utf-8"))
    return rows


def test_every_path_but_those_of_cuda_runs_on_a_cpu(tmp_path: Path) -> None:
    sections = ("ceilings", "equal losses", "pretraining at 128", "inference", "loader")
    rows = run(tmp_path, "--without-transformers", "--sections", *sections, "memory")
    left_out = [row for row in rows if row["kind"] == "left out"]
    assert [row for row in left_out if row["is_failure"]] == []
    assert {row["why"] for row in left_out} == {"needs a CUDA device", "transformers is not installed"}
    assert {row["section"] for row in rows if row["kind"] == "figure"} == set(sections)


def test_both_libraries_compute_the_same(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    rows = run(tmp_path, "--sections", "equal losses", "inference")
    apart = {row["name"]: row for row in rows if row["kind"] == "target"}
    assert len(apart) == 3
    assert {name: row["value"] for name, row in apart.items() if row["value"] > row["most"]} == {}


def test_operations_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.steps import MASKED_SHARE, forward_flops
    from litebert.config import preset

    per_token = [
        forward_flops(preset("base-v2"), [length] * (51_200 // length), round(MASKED_SHARE * 51_200)) / 51_200
        for length in (128, 512)
    ]
    assert per_token == pytest.approx([176.0e6, 190.1e6], rel=1e-3)
