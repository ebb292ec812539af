"""Figures in README, the pages and the model's card are those of the files of
measurements that they come from.

Each case names a sentence of a page with `{}` where a figure stands, and where each
figure was recorded: a cell of a table, or a sentence of a file. Both are read.
"""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = "README.md"
RESULTS = "benchmarks/RESULTS.md"
NUMBER = r"(-?[\d,]*\.?\d+)"


@cache
def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def section(page: str, *headings: str) -> str:
    """Return the text below a heading up to the next of its rank, then below a heading
    in that text, and so on.
    """
    text = read(page)
    for heading in headings:
        title = re.search(rf"^(#+) {re.escape(heading)}.*$", text, re.MULTILINE)
        assert title, f"{page} has no heading {heading!r}"
        below = text[title.end() :]
        rank = len(title[1])
        end = re.search(rf"^#{{1,{rank}}} ", below, re.MULTILINE)
        text = below[: end.start()] if end else below
    return text


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a text: lists of rows, the headings first."""
    found = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        rows = [cells(line) for line in block.splitlines()]
        # the second line is a rule
        found.append([rows[0], *rows[2:]])
    return found


def row(text: str, label: str) -> dict[str, str]:
    """Return the first row of the tables whose first cell is `label`, by column."""
    for headings, *lines in tables(text):
        for line in lines:
            if line[0] == label:
                return dict(zip(headings, line, strict=True))
    raise AssertionError(f"no row {label!r}")


def value(shown: str) -> float:
    return float(shown.replace(",", ""))


def assert_rounds_to(measured: float, shown: str) -> None:
    """Assert that a figure is a measured one, rounded to the digits that are shown."""
    decimals = len(shown.partition(".")[2])
    half = 0.5 * 10**-decimals
    assert abs(measured - value(shown)) <= half + 1e-9, (measured, shown)


# ---- the table of speeds in README

SPEED = {
    "1 text of 16 tokens": "1 x 16",
    "8 texts of 128 tokens": "8 x 128",
    "SST-2, NLI and IMDB, batches of 16, in file order": "stream",
    "a pretraining step, 8 x 512": "pretraining 8 x 512",
    "fine-tuning on SST-2, against `Trainer`": "fine-tuning 96",
}
"""Rows of README's table, and of the recorded one."""

PRECISIONS = ["fp32", "bf16", "int8"]
SPEEDUPS = re.compile(rf"\**{NUMBER}\** \({NUMBER} (\w+)\)")
SHOWN = re.compile(rf"{NUMBER} \((\w+) {NUMBER}\)")


def test_readme_shows_our_speed_and_that_of_the_best_rival() -> None:
    recorded = section(RESULTS, "Speed on a Xeon with AMX", "1 thread")
    page = section(README, "How fast")
    (table,) = tables(page)
    assert [line[0] for line in table[1:]] == list(SPEED)
    for label, work in SPEED.items():
        shown_row = row(page, label)
        measured_row = row(recorded, work)
        for precision in PRECISIONS:
            measured = SPEEDUPS.fullmatch(measured_row[precision])
            if not measured:
                assert shown_row[precision] == ""
                continue
            shown = SHOWN.fullmatch(shown_row[precision])
            assert shown, shown_row
            ours, rival, best = measured.groups()
            assert shown[2].lower() == best
            assert_rounds_to(value(ours), shown[1])
            assert_rounds_to(value(rival), shown[3])


@pytest.mark.parametrize("work", SPEED.values())
def test_the_best_rival_is_the_fastest_of_those_measured(work: str) -> None:
    recorded = section(RESULTS, "Speed on a Xeon with AMX", "1 thread")
    _, contenders = tables(recorded)
    headings, *lines = contenders
    times = headings.index("times")
    measured_row = row(recorded, work)
    for precision in PRECISIONS:
        measured = SPEEDUPS.fullmatch(measured_row[precision])
        if not measured:
            continue
        rivals = {
            line[1]: value(line[times])
            for line in lines
            if line[0] == work and line[1].endswith(precision)
        }
        ours = rivals.pop(f"litebert {precision}")
        assert ours == value(measured[1])
        assert max(rivals, key=rivals.__getitem__) == f"{measured[3]} {precision}"
        assert max(rivals.values()) == value(measured[2])


def test_readme_says_where_the_best_rival_is_faster() -> None:
    recorded = section(RESULTS, "Speed on a Xeon with AMX", "1 thread")
    short = row(recorded, "1 x 16")
    for precision in PRECISIONS:
        ours, rival, best = SPEEDUPS.fullmatch(short[precision]).groups()
        assert value(ours) < value(rival)
        assert best == "openvino"
    text = " ".join(section(README, "How fast").split())
    assert "one short text OpenVINO is faster than litebert in every precision" in text
    epyc = row(section(RESULTS, "Speed on a CPU: `make bench`", "1 thread"), "1 x 512")
    ours, rival, _ = SPEEDUPS.fullmatch(epyc["int8"]).groups()
    shown = re.search(rf"on an AMD EPYC, OpenVINO is up to {NUMBER} times", text)
    assert_rounds_to(value(rival) / value(ours), shown[1])
