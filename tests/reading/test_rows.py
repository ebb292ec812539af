"""Rows of .jsonl and .parquet inputs."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from litebert.corpus.text import TextSettings, read_passages
from litebert.errors import DamagedError, LitebertError
from litebert.reading.source import find_text
from litebert.reading.tables import parse_row, texts_of

PLACE = "a.jsonl, line 3"


def read(path: Path, column: str = "text") -> list[tuple[int, str]]:
    passages = read_passages(find_text(str(path)), TextSettings(column=column))
    return [(passage.line, passage.text) for passage in passages]


NO_OBJECTS = ['{"text": "one"', '{"text": NaN}', '{"text": "one", "text": "two"}', '{"text": "one"} {}', "[" * 100_000]
NO_OBJECTS += [
    '{"a":' * 100_000,
    '{"n": ' + "9" * 5_000 + "}",
    '{"text": "tab\tinside"}',
    "not json",
    '["text"]',
    "null",
]


def test_line_that_is_no_object_of_json_is_refused_with_its_number() -> None:
    for line in NO_OBJECTS:
        with pytest.raises(LitebertError, match=r"a\.jsonl, line 3: not (JSON|an object)") as caught:
            parse_row(line, PLACE)
        assert len(str(caught.value)) < 700


DEEP = functools.reduce(lambda inner, _: [inner], range(5_000), "one")


NO_TEXTS: list[tuple[dict[str, object], str, str]] = [
    *(({"text": value}, "text", "is not text") for value in (None, 3, True, {"a": "b"}, [["one"], 3], DEEP)),
    ({"title": "a", "texts": "b"}, "text", r"no column text(?s:.*)one of title, texts(?s:.*)did you mean texts\?"),
    ({"chapters": [{"heading": "a"}]}, "chapters.text", "no column text in chapters"),
]


def test_column_that_is_missing_or_not_text_is_refused() -> None:
    for row, column, told in NO_TEXTS:
        with pytest.raises(LitebertError, match=told):
            list(texts_of(row, column, PLACE))


def test_each_row_is_a_document_with_its_line(write: Callable[[str, str], Path]) -> None:
    path = write("a.jsonl", '{"text": "one\\n\\ntwo"}\n\n{"text": ""}\n{"text": "a\\ud800b"}\n')
    assert read(path) == [(1, "one\n\ntwo"), (3, ""), (4, "a\ufffdb")]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """Give a parquet file of 100 rows, a text and a list of chapters each."""
    rows = [{"text": f"text {k}", "chapters": [{"body": f"{k}a"}, {"body": f"{k}b"}]} for k in range(100)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_parquet_rows_are_documents(parquet: Path) -> None:
    assert read(parquet) == [(k + 1, f"text {k}") for k in range(100)]
    assert read(parquet, "chapters.body")[:4] == [(1, "0a"), (1, "0b"), (2, "1a"), (2, "1b")]
    with pytest.raises(LitebertError, match=r"there is no column txt(?s:.*)one of text, chapters"):
        read(parquet, "txt")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["one", None]}), parquet)
    with pytest.raises(LitebertError, match=r"a\.parquet, row 2: column text is not text"):
        read(parquet)


def test_parquet_that_is_cut_off_or_has_a_damaged_page_is_damaged(parquet: Path) -> None:
    table = pyarrow.table({"text": [json.dumps(list(range(k, k + 40))) for k in range(2_000)]})
    pyarrow.parquet.write_table(table, parquet, compression="gzip", use_dictionary=False)
    whole = parquet.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]
    for content in (flipped, *(whole[: int(len(whole) * share)] for share in (0.1, 0.5, 0.95))):
        parquet.write_bytes(content)
        with pytest.raises(DamagedError, match="is damaged after row"):
            read(parquet)


def test_parquet_strings_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    words, path = pyarrow.array([b"fine", b"caf\xe9"]), tmp_path / "latin.parquet"
    words = pyarrow.StringArray.from_buffers(2, *words.buffers()[1:])
    pyarrow.parquet.write_table(pyarrow.table({"text": words}), path)
    with pytest.raises(DamagedError, match=r"LB-342.*latin\.parquet, row 1"):
        read(path)
