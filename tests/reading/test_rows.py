"""Rows of .jsonl and .parquet inputs."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.corpus.text import TextSettings, read_passages
from litebert.errors import DamagedError, LitebertError
from litebert.reading.source import Source, find_text
from litebert.reading.tables import RowPlace, parse_row, texts_of

PLACE = RowPlace(Source("a.jsonl", "/a.jsonl", ".jsonl", "", 1), 3)


def read(path: Path, column: str = "text") -> list[tuple[int, str]]:
    passages = read_passages(find_text(str(path)), TextSettings(column=column))
    return [(passage.line, passage.text) for passage in passages]


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "one"',
        '{"text": NaN}',
        '{"text": "one", "text": "two"}',
        '{"text": "one"} {}',
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"n": ' + "9" * 5_000 + "}",
        '{"text": "tab\tinside"}',
        "not json",
    ],
)
def test_line_that_is_not_json_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(LitebertError, match=r"a\.jsonl, line 3: not JSON") as caught:
        parse_row(line, PLACE)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("line", ['["text"]', '"text"', "null", "3"])
def test_line_that_is_no_object_is_refused(line: str) -> None:
    with pytest.raises(LitebertError, match="line 3: not an object"):
        parse_row(line, PLACE)


@pytest.mark.parametrize("value", [None, 3, True, {"deeper": "one"}, [["one"], 3]])
def test_value_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(LitebertError, match="column text is not text"):
        list(texts_of({"text": value}, "text", PLACE))


def test_lists_without_end_are_refused() -> None:
    value: object = "one"
    for _ in range(5_000):
        value = [value]
    with pytest.raises(LitebertError, match="is not text"):
        list(texts_of({"text": value}, "text", PLACE))


def test_missing_column_lists_those_there_are() -> None:
    with pytest.raises(LitebertError, match="there is no column text") as caught:
        list(texts_of({"title": "a", "texts": "b"}, "text", PLACE))
    assert caught.value.expected == "one of title, texts"
    assert "did you mean texts?" in caught.value.next


def test_missing_column_says_where_it_was_looked_for() -> None:
    with pytest.raises(LitebertError, match="no column text in chapters"):
        list(texts_of({"chapters": [{"heading": "a"}]}, "chapters.text", PLACE))


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])))))
@settings(deadline=None, max_examples=50)
def test_dotted_column_fans_out_over_lists(chapters: list[list[str]]) -> None:
    row = {"book": {"chapters": [{"pages": pages} for pages in chapters]}}
    expected = [page for pages in chapters for page in pages]
    assert list(texts_of(row, "book.chapters.pages", PLACE)) == expected


def test_lone_surrogate_becomes_the_replacement_character() -> None:
    assert list(texts_of(parse_row('{"text": "a\\ud800b"}', PLACE), "text", PLACE)) == ["a\ufffdb"]


def test_each_row_is_a_document_with_its_line(write: Callable[[str, str], Path]) -> None:
    path = write("a.jsonl", '{"text": "one\\n\\ntwo"}\n\n{"text": ""}\n{"text": "three"}\n')
    assert read(path) == [(1, "one\n\ntwo"), (3, ""), (4, "three")]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """Give a parquet file of 100 rows, a text and a list of chapters each."""
    rows = [{"text": f"text {k}", "chapters": [{"body": f"{k}a"}, {"body": f"{k}b"}]} for k in range(100)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_parquet_rows_are_documents(parquet: Path) -> None:
    assert read(parquet) == [(k + 1, f"text {k}") for k in range(100)]


def test_dotted_column_works_in_parquet(parquet: Path) -> None:
    assert read(parquet, "chapters.body")[:4] == [(1, "0a"), (1, "0b"), (2, "1a"), (2, "1b")]


def test_wrong_column_of_parquet_lists_those_there_are(parquet: Path) -> None:
    with pytest.raises(LitebertError, match="there is no column txt") as caught:
        read(parquet, "txt")
    assert caught.value.expected == "one of text, chapters"


def test_null_in_parquet_is_named_by_row(tmp_path: Path) -> None:
    table = pyarrow.table({"text": ["one", None]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(LitebertError, match=r"a\.parquet, row 2: column text is not text"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_parquet_that_is_cut_off_is_damaged(parquet: Path, share: float) -> None:
    whole = parquet.read_bytes()
    parquet.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DamagedError, match="is damaged after row"):
        read(parquet)


def test_parquet_with_a_damaged_page_is_damaged(tmp_path: Path) -> None:
    table = pyarrow.table({"text": [json.dumps(list(range(k, k + 40))) for k in range(2_000)]})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path, compression="gzip", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="is damaged after row"):
        read(path)


def test_parquet_strings_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    words = pyarrow.array([b"fine", b"caf\xe9"]).cast(pyarrow.string(), safe=False)
    path = tmp_path / "latin.parquet"
    try:
        words = pyarrow.StringArray.from_buffers(2, *words.buffers()[1:])
    finally:
        pyarrow.parquet.write_table(pyarrow.table({"text": words}), path)
    with pytest.raises(DamagedError, match=r"LB-342.*latin\.parquet, row 1"):
        list(read_passages(find_text(str(path)), TextSettings()))
