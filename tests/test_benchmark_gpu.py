"""benchmarks/gpu.py runs where there is no GPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def run(folder: Path, *sections: str) -> dict[str, Any]:
    """Run the benchmark on this CPU and return what it found."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--out", str(folder / "gpu"), "--device", "cpu"]
    command += ["--preset", "tiny", "--smoke", "--sections", *sections]
    subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert (folder / "gpu.md").read_text("utf-8").startswith("# litebert on a GPU")
    found: dict[str, Any] = json.loads((folder / "gpu.json").read_text("utf-8"))
    return found


def test_every_path_but_that_of_memory_runs_on_a_cpu_and_both_libraries_compute_the_same(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sections = ("equal losses", "pretraining at 128", "ragged lengths", "inference")
    found = run(tmp_path, *sections, "memory")
    assert list(found["failures"]) == ["memory"]
    assert {row["section"] for row in found["figures"]} == set(sections)
    apart = {row["name"]: row["value"] for row in found["figures"] if "apart" in row["name"]}
    assert len(apart) == 3
    assert max(apart[f"losses apart, {kind}"] for kind in ("128", "ragged")) < 1e-2
    assert apart["hidden states apart"] < 2e-2


def test_operations_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.steps import MASKED_SHARE, forward_flops
    from litebert.config import preset

    per_token = [
        forward_flops(preset("base-v2"), [length] * (51_200 // length), round(MASKED_SHARE * 51_200)) / 51_200
        for length in (128, 512)
    ]
    assert per_token == pytest.approx([176.0e6, 190.1e6], rel=1e-3)
