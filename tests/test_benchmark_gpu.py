"""benchmarks/gpu.py runs where there is no GPU, on few packages, and ends in time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
STOCK = {"torch", "torchgen", "functorch", "numpy", "typing_extensions", "tqdm", "sympy", "mpmath"}
STOCK |= {"filelock", "fsspec", "jinja2", "markupsafe", "networkx", "setuptools", "triton"}
VENDORED = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection", "jaxtyping", "wadler_lindig"}
VENDORED |= {"sentencepiece", "sentencex", "google"}


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


def test_what_a_stock_image_lacks_is_named_in_the_docstring() -> None:
    code = "import sys, benchmarks.gpu; "
    code += "print(*{name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    found = {name for name in shown.stdout.split() if not name.startswith("_")} - {"benchmarks", "litebert"}
    assert found - STOCK <= VENDORED


def test_a_section_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    rows = run(tmp_path, "--minutes", "0.0001", "--sections", "equal losses", "ceilings")
    reasons = {row["section"]: row["why"] for row in rows if row["kind"] == "left out"}
    assert set(reasons) == {"equal losses", "ceilings"}
    assert [row for row in rows if row["kind"] == "figure"] == []


def test_operations_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.steps import MASKED_SHARE, forward_flops
    from litebert.config import preset

    per_token = [
        forward_flops(preset("base-v2"), [length] * (51_200 // length), round(MASKED_SHARE * 51_200)) / 51_200
        for length in (128, 512)
    ]
    assert per_token == pytest.approx([176.0e6, 190.1e6], rel=1e-3)
