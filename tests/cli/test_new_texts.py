"""Files of new texts for the verbs: which column is read, and what is told of others."""

from pathlib import Path

import pytest

from litebert.cli.rows import Reading, find_source, find_sources
from litebert.errors import LitebertError
from litebert.reading.tables import Row
from tests.tables import Write

TEXTS = Reading(("text",), ("text",))


def rows_read(reading: Reading, path: object) -> list[tuple[int, Row]]:
    return list(reading.rows([find_source(str(path))]))


def test_texts_to_be_tagged_stand_in_the_column_of_the_training(write: Write) -> None:
    path = write("a.csv", "satz;id\nAnna left.;1\n")
    reading = Reading(("text",), ("text",), trained={"tokens": "satz", "tags": "t"})
    assert rows_read(reading, path) == [(1, {"text": "Anna left.", "id": "1"})]


def test_the_texts_of_a_pair_stand_in_the_columns_of_the_training(
    write: Write,
) -> None:
    path = write("a.csv", "satz,zweiter,label\nAnna left.,Bert came.,1\n")
    columns = {"text": "satz", "second": "zweiter"}
    reading = Reading(("first", "second"), ("first", "second"), trained=columns)
    pair = {"first": "Anna left.", "second": "Bert came."}
    assert rows_read(reading, path) == [(1, pair)]


def test_words_to_be_tagged_are_for_predict(write: Write) -> None:
    path = write("a.conll", "Anna B-PER\nleft O\n\n" * 3)
    with pytest.raises(LitebertError, match=r"LB-944(.|\n)*use predict"):
        rows_read(TEXTS, path)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("id,Review,sentiment\n1,so good,pos\n2,so dull,neg\n", "Review"),
        ("so good it was,pos\nso dull it is,neg\n" * 3, "1"),
    ],
    ids=["a header", "no header"],
)
def test_a_file_without_the_column_is_told_the_likely_one(
    table: str, column: str, write: Write
) -> None:
    path = write("a.csv", table)
    with pytest.raises(LitebertError, match="LB-944") as raised:
        rows_read(TEXTS, path)
    assert raised.value.next == f"add --column text={column}"


def test_a_path_to_a_file_without_an_ending_is_no_text(tmp_path: Path) -> None:
    posts = tmp_path / "posts"
    posts.write_text("Anna walked home.\n")
    with pytest.raises(LitebertError, match="LB-304"):
        find_sources([str(posts)])
    assert find_sources(["and/or"]) == find_sources(["posts"]) == []
