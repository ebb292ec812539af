"""Tables as text for a terminal, and the words for single values."""

import csv
import io

import pytest

from litebert.report.tables import (
    LONGEST_VALUE,
    NARROWEST,
    Table,
    format_cell,
    format_share,
    format_value,
)

HEADINGS = ("name", "what it is", "f1")
WORDS = "a sentence of many words that a narrow terminal cannot show in one line"
TABLE = Table(HEADINGS, [("one", WORDS, 0.5), ("two", "short", None)])


def set_width(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))


def test_a_table_that_fits_has_a_line_for_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_width(monkeypatch, 200)
    lines = str(TABLE).splitlines()
    assert [line.split()[0] for line in lines] == ["name", "one", "two"]
    assert WORDS in lines[1]


@pytest.mark.parametrize("columns", [40, 60])
def test_long_words_are_wrapped_so_that_a_line_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_width(monkeypatch, columns)
    lines = str(TABLE).splitlines()
    # the column of words gave way, and no more of it than was needed
    assert max(map(len, lines)) == columns
    assert len(lines) > 3
    shown = " ".join(line[5:].removesuffix("0.5000") for line in lines[1:-1])
    assert shown.split() == WORDS.split()


def test_a_terminal_that_is_too_narrow_for_any_table_gets_whole_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_width(monkeypatch, NARROWEST)
    assert WORDS in str(TABLE)
    # numbers are never wrapped
    numbers = Table(("first", "second"), [(10**9, 10**9)])
    assert str(numbers).splitlines()[1].split() == ["1,000,000,000"] * 2


def test_a_column_of_words_keeps_a_few_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(("a", "b"), [("x " * NARROWEST, "y " * NARROWEST)])
    gap = 2
    set_width(monkeypatch, 2 * NARROWEST + gap)
    assert max(map(len, str(table).splitlines())) < 2 * NARROWEST + gap
    set_width(monkeypatch, 2 * NARROWEST + gap - 1)
    assert len(str(table).splitlines()) == 2


def test_a_digest_is_what_a_terminal_shows_and_files_get_all_columns() -> None:
    digest = Table(("name",), [("one",)])
    table = Table(HEADINGS, TABLE.rows, digest=digest)
    assert str(table) == str(digest)
    assert table.as_json()[0] == dict(zip(HEADINGS, TABLE.rows[0], strict=True))
    assert WORDS in table.as_markdown()
    assert table.exit_code == 0


def test_csv_has_full_numbers_words_for_booleans_and_nothing_for_the_unknown() -> None:
    table = Table(("a", "b", "c"), [(0.123456789, True, None), ("x, y", 3, "-")])
    rows = list(csv.reader(io.StringIO(table.as_csv())))
    assert rows == [["a", "b", "c"], ["0.123456789", "yes", ""], ["x, y", "3", "-"]]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "-"),
        ("0.5", "0.5"),
        (True, "yes"),
        (False, "no"),
        (1, "1"),
        (12_345, "12,345"),
        (1.0, "1.0000"),
        (100.0, "100.0000"),
        (101.0, "101"),
        (-101.0, "-101"),
        (101.5, "101.5000"),
        (float("inf"), "not finite"),
    ],
)
def test_a_cell_shows_whether_it_is_a_count_or_a_measure(
    cell: object, text: str
) -> None:
    assert format_cell(cell) == text


def test_shares_that_are_not_finite_and_long_settings_are_told_as_such() -> None:
    assert format_share(0.125) == "12.5%"
    assert format_share(float("nan")) == "not finite"
    longest = "x" * LONGEST_VALUE
    assert format_value(longest) == longest
    assert format_value(longest + "y") == f"{longest}…"
    assert format_value({"é": [1]}) == '{"é": [1]}'
