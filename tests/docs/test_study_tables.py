"""The tables of docs/study.md are what their metrics files say."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_page_are_those_of_the_metrics_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    script = vars(importlib.import_module("benchmarks.study.tables"))
    page = (ROOT / "docs" / "study.md").read_text("utf-8")
    assert len(script["BLOCK"].findall(page)) >= 10
    assert script["page_with_tables"](page) == page
