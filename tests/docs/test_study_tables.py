"""The tables of the studies are what their metrics files say."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_pages_are_those_of_the_metrics_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    script = vars(importlib.import_module("benchmarks.study.tables"))
    texts = [path.read_text("utf-8") for path in script["PAGES"]]
    assert sum(len(script["BLOCK"].findall(text)) for text in texts) >= 10
    assert [script["page_with_tables"](text) for text in texts] == texts
