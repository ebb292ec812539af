"""Every test that docs/reliability.md names is there, and every promise has one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`(?: \((\w+)\))?")
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")


def test_every_promise_names_its_tests() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "promise" not in line]
    assert len(rows) >= 45
    assert [row for row in rows if not NAMED.search(row)] == []


@pytest.mark.parametrize("named", sorted(set(NAMED.findall(PAGE))), ids=lambda named: named[1])
def test_a_named_test_is_there_and_runs_when_the_page_says(named: tuple[str, str, str]) -> None:
    file, name, marker = named
    source = (ROOT / "tests" / file).read_text("utf-8")
    found = re.search(rf"((?:^@.*\n(?:    .*\n|\).*\n)*)*)^def {name}\(", source, re.MULTILINE)
    assert found, f"{file} has no {name}"
    is_slow = "@pytest.mark.slow" in found[1]
    assert is_slow == (marker == "slow")
