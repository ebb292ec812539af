"""The notebook runs; tables and sentences agree with the metrics; every promise has its
tests.
"""

import importlib
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from litebert.plugins import VERBS
from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]


def test_the_notebook_has_no_outputs_and_every_cell_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITEBERT_NOTEBOOK_MINUTES", "0.05")
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(ROOT / "docs/notebooks/albert.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells)
    place = {"metadata": {"path": tmp_path}}
    NotebookClient(
        notebook, timeout=int(DEADLINE), kernel_name="python3", resources=place
    ).execute()
    assert all(cell.execution_count for cell in cells)
    assert any(
        "text/html" in out.get("data", {}) for cell in cells for out in cell.outputs
    )


def test_the_tables_of_pages_are_those_of_the_metrics_files_and_the_scripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    tables = importlib.import_module("benchmarks.study.pages")
    texts = [path.read_text("utf-8") for path in tables.PAGES]
    assert sum(len(tables.BLOCK.findall(text)) for text in texts) >= 10
    assert [tables.page_with_tables(text) for text in texts] == texts
    # its tables that need no measurement
    page = (ROOT / "benchmarks" / "scale_map.md").read_text("utf-8")
    computed = (
        importlib.import_module("benchmarks.scale_map").computed_tables().split("\n\n")
    )
    assert [table in page for table in computed] == [True, True]


# docs/reliability.md

NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`(?: \((\w+)\))?")
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")


def test_the_pages_on_files_and_on_routes_have_every_verb_with_its_parts() -> None:
    files = (ROOT / "docs/bulk.md").read_text("utf-8")
    routes = (ROOT / "docs/serving.md").read_text("utf-8").splitlines()
    for name, verb in VERBS.items():
        assert f"`{name}`" in files
        for role in verb.roles[:3]:
            assert f"`{role}`" in files, (name, role)
        if verb.use_of:
            continue
        (row,) = [line for line in routes if line.startswith(f"| `POST /v1/{name}` |")]
        for field in {*verb.inputs, *verb.options} - {"max_length"}:
            assert f"`{field}`" in row, (name, field)


def test_every_promise_names_its_tests() -> None:
    _, *promises = re.split(r"(?m)^- \*\*", PAGE)
    assert len(promises) >= 45
    assert [promise for promise in promises if not NAMED.search(promise)] == []


@pytest.mark.parametrize(
    "named", sorted(set(NAMED.findall(PAGE))), ids=lambda named: named[1]
)
def test_a_named_test_exists_and_is_slow_if_the_page_says_so(
    named: tuple[str, str, str],
) -> None:
    file, name, marker = named
    source = (ROOT / "tests" / file).read_text("utf-8")
    found = re.search(
        rf"((?:^@.*\n(?:    .*\n|\).*\n)*)*)^def {name}\(", source, re.MULTILINE
    )
    assert found, f"{file} has no {name}"
    is_slow = "@pytest.mark.slow" in found[1]
    assert is_slow == (marker == "slow")
