"""The tables of docs/study.md are what their metrics files say."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_page_are_those_of_the_metrics_files() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "study" / "tables.py"))
    page = (ROOT / "docs" / "study.md").read_text("utf-8")
    assert len(script["BLOCK"].findall(page)) >= 10
    assert script["page_with_tables"](page) == page
