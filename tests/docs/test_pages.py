"""Pages agree with the code: the notebook runs, tables are those of the measurements,
every verb is described, links lead to files, every promise has its tests.
"""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from docs.gather_pages import gather
from litebert.plugins import VERBS
from tests.conftest import ROOT
from tests.waiting import DEADLINE

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)

# ---- the notebook --------------------------------------------------------------------


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_has_no_outputs() -> None:
    notebook = nbformat.read(DOCS / "notebooks/albert.ipynb", as_version=4)
    assert code_cells(notebook)
    for cell in code_cells(notebook):
        assert not cell.outputs, cell.source


def test_every_cell_of_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITEBERT_NOTEBOOK_MINUTES", "0.05")
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(DOCS / "notebooks/albert.ipynb", as_version=4)
    client = NotebookClient(
        notebook,
        timeout=int(DEADLINE),
        kernel_name="python3",
        resources={"metadata": {"path": tmp_path}},
    )
    client.execute()

    kinds_of_output = set[str]()
    for cell in code_cells(notebook):
        assert cell.execution_count, cell.source
        for output in cell.outputs:
            kinds_of_output |= output.get("data", {}).keys()
    assert "text/html" in kinds_of_output  # answers are shown as tables


# ---- tables of measurements ----------------------------------------------------------


def test_the_tables_of_the_study_are_those_of_its_metrics_files() -> None:
    from benchmarks.study import pages

    num_tables = 0
    for path in pages.PAGES:
        text = path.read_text("utf-8")
        num_tables += len(pages.BLOCK.findall(text))
        assert pages.page_with_tables(text) == text
    assert num_tables >= 10


def test_the_tables_that_need_no_measurement_are_those_of_their_script() -> None:
    from benchmarks.scale_map import computed_tables

    page = (ROOT / "benchmarks" / "scale_map.md").read_text("utf-8")
    times, failures = computed_tables().split("\n\n")
    assert times in page
    assert failures in page


# ---- every verb ----------------------------------------------------------------------


@pytest.mark.parametrize("name", VERBS)
def test_the_page_on_files_has_a_verb_with_its_columns(name: str) -> None:
    page = (DOCS / "bulk.md").read_text("utf-8")
    assert f"`{name}`" in page
    for role in VERBS[name].roles[:3]:
        assert f"`{role}`" in page, role


@pytest.mark.parametrize("name", [name for name in VERBS if not VERBS[name].use_of])
def test_the_page_on_serving_has_the_route_of_a_verb(name: str) -> None:
    verb = VERBS[name]
    lines = (DOCS / "serving.md").read_text("utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith(f"| `POST /v1/{name}` |")]
    # the table names max_length once, for all
    for field in {*verb.inputs, *verb.options} - {"max_length"}:
        assert f"`{field}`" in row, field


# ---- links ---------------------------------------------------------------------------


def links_of(page: Path) -> list[str]:
    """Return the files that a page links to, as it names them."""
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    return [target for target in targets if "://" not in target]


@every_page
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    for target in links_of(page):
        assert (page.parent / target).exists(), target


def test_pages_of_the_site_link_to_pages_of_the_site_only(tmp_path: Path) -> None:
    site = tmp_path / "pages"
    gather(site)
    pages = list(site.rglob("*.md"))
    assert pages
    for page in pages:
        for target in links_of(page):
            assert (page.parent / target).resolve().is_relative_to(tmp_path), target


def test_the_site_lists_existing_pages_once_each() -> None:
    listed = re.findall(r"(\S+\.md)", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert listed
    for page in listed:
        assert (DOCS / page).is_file(), page
        assert listed.count(page) == 1, page


# ---- the promises of docs/reliability.md ---------------------------------------------

RELIABILITY = (DOCS / "reliability.md").read_text("utf-8")
# `folder/file.py::name`, and perhaps (slow)
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`(?: \((\w+)\))?")
NAMED_TESTS = sorted(set(NAMED_TEST.findall(RELIABILITY)))


def test_every_promise_names_its_tests() -> None:
    _, *promises = re.split(r"(?m)^- \*\*", RELIABILITY)
    assert len(promises) >= 45
    for promise in promises:
        assert NAMED_TEST.search(promise), promise


@pytest.mark.parametrize(
    ("file", "name", "marker"), NAMED_TESTS, ids=[name for _, name, _ in NAMED_TESTS]
)
def test_a_named_test_exists_and_is_slow_if_the_page_says_so(
    file: str, name: str, marker: str
) -> None:
    source = (ROOT / "tests" / file).read_text("utf-8")
    # the lines of its decorators, then the test
    decorators = r"((?:^@.*\n(?:    .*\n|\).*\n)*)*)"
    definition = re.search(rf"{decorators}^def {name}\(", source, re.MULTILINE)
    assert definition is not None, f"{file} has no {name}"
    is_slow = "@pytest.mark.slow" in definition[1]
    assert is_slow == (marker == "slow")
