"""The tables of benchmarks/scale_map.md that need no measurement are what the script computes."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_computed_tables_of_the_page_are_those_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    script = vars(importlib.import_module("benchmarks.scale_map"))
    page = (ROOT / "benchmarks" / "scale_map.md").read_text("utf-8")
    tables = script["computed_tables"]().split("\n\n")
    assert len(tables) == 2
    for table in tables:
        assert table in page
