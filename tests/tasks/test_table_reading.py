"""Files of one's own as rows: every way of writing them, and what is wrong with a row."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.reading import lines, tables
from litebert.reading.tables import MAX_WORDS
from litebert.tasks.own.columns import label_of, list_of, number_of, text_of
from litebert.tasks.own.table import TableFile, guess_dialect, guess_header, open_table

Write = Callable[[str, bytes | str], Path]
PAIRS = [{"text": "It was good, really.", "label": "pos"}, {"text": "No.", "label": "neg"}]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Give a writer of files."""

    def write_file(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def rows(table: TableFile) -> list[dict[str, object]]:
    return [dict(row) for _, row in table.rows()]


def problems(table: TableFile) -> list[tuple[int, str]]:
    return [(number, row.code) for number, row in table.scan() if isinstance(row, LitebertError)]


def parquet_bytes(table: dict[str, list[object]]) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table), file)
    return file.getvalue()


COMMAS = 'text,label\n"It was good, really.",pos\nNo.,neg\n'
WRITTEN = {
    "commas.csv": COMMAS,
    "semicolons.csv": "text;label\nIt was good, really.;pos\nNo.;neg\n",
    "bars.csv": "text|label\nIt was good, really.|pos\nNo.|neg\n",
    "tabs.tsv": "text\tlabel\nIt was good, really.\tpos\nNo.\tneg\n",
    "tabs.csv": "text\tlabel\nIt was good, really.\tpos\nNo.\tneg\n",
    "windows.csv": "\ufeff" + COMMAS.replace("\n", "\r\n"),
    "spaces.csv": 'text, label\n"It was good, really.", pos\nNo., neg\n',
    "last-line-open.csv": COMMAS.rstrip("\n"),
    "blank-lines.csv": COMMAS.replace("\n", "\n\n"),
    "all-quoted.tsv": '"text"\t"label"\n"It was good, really."\t"pos"\n"No."\t"neg"\n',
    "rows.jsonl": "\n".join(map(json.dumps, PAIRS)),
    "rows.ndjson": "\n\n".join(map(json.dumps, PAIRS)) + "\n",
    "list.json": json.dumps(PAIRS, indent=1),
    "wrapped.json": json.dumps({"version": 1, "data": PAIRS}),
    "rows.parquet": parquet_bytes({name: [row[name] for row in PAIRS] for name in PAIRS[0]}),
    "rows.csv.gz": gzip.compress(COMMAS.encode()),
    "rows.csv.zst": zstandard.compress(COMMAS.encode()),
    "rows.jsonl.gz": gzip.compress("\n".join(map(json.dumps, PAIRS)).encode()),
    "UPPER.CSV": COMMAS,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_same_rows_are_read_however_they_are_written(name: str, write: Write) -> None:
    table = open_table(write(name, WRITTEN[name]))
    assert table.columns == ("text", "label")
    assert rows(table) == PAIRS


@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=8
    ),
    delimiter=st.sampled_from(",;\t|"),
)
def test_what_a_csv_library_writes_is_read_back(
    texts: list[str], delimiter: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cells = [text.replace("\r\n", " ").replace("\r", " ").lstrip(" ") for text in texts]
    path = tmp_path_factory.getbasetemp() / ("rows.tsv" if delimiter == "\t" else "rows.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["id", "text", "label"])
        writer.writerows([number, text, "a"] for number, text in enumerate(cells))
    assert [row["text"] for row in rows(open_table(path))] == cells


def test_quotes_mean_nothing_between_tabs_unless_they_must(write: Write) -> None:
    raw = 'text\tlabel\n"Yes," he said.\tpos\n"All of it."\tneg\nA "so-called" film.\tneg\n'
    texts = [row["text"] for row in rows(open_table(write("raw.tsv", raw)))]
    assert texts == ['"Yes," he said.', '"All of it."', 'A "so-called" film.']
    quoted = 'text\tlabel\n"Say ""yes""\tnow."\tpos\nNo.\tneg\n'
    assert rows(open_table(write("quoted.tsv", quoted)))[0]["text"] == 'Say "yes"\tnow.'


def test_row_over_several_lines_is_numbered_by_its_first(write: Write) -> None:
    content = 'text,label\n"one\ntwo",pos\n"three\n\nfour",neg\nfive,pos\n'
    table = open_table(write("lines.csv", content))
    assert [(number, row["text"]) for number, row in table.rows()] == [
        (2, "one\ntwo"),
        (4, "three\n\nfour"),
        (7, "five"),
    ]


def test_backslash_before_a_quote_is_read_where_a_file_has_it(write: Write) -> None:
    content = "text,label\n" + '"He said \\"no\\", twice.",neg\n' * 3
    assert rows(open_table(write("escaped.csv", content)))[0]["text"] == 'He said "no", twice.'


def test_columns_without_a_header_are_called_by_their_numbers(write: Write) -> None:
    table = open_table(write("bare.csv", "5,a fine film\n1,a dull film\n5,so good\n"))
    assert (table.columns, table.has_header) == (("1", "2"), False)
    assert len(rows(table)) == 3


@pytest.mark.parametrize(
    ("first", "rest", "is_header"),
    [
        (["text", "label"], [["a", "b"]], True),
        (["Meinung", "Note"], [["Es war sehr schön dort.", "1"], ["Nie wieder!", "5"]], True),
        (["Verdict", "Remark"], [[v, f"so it is {v}"] for v in ["yes", "no"] * 4], True),
        (["good", "5"], [["bad", "1"], ["fine", "5"]], False),
        (["pos", "A lovely film."], [["neg", "A dull one."], ["pos", "Again!"]], False),
        (["label", "A question."], [["text", "An answer."], ["label", "Another."]], False),
        (["one film I saw there", "x"], [["another film that I saw", "y"]], False),
    ],
)
def test_header_is_told_from_a_row(first: list[str], rest: list[list[str]], is_header: bool) -> None:
    assert guess_header([first, *rest]) is is_header


def test_names_known_from_another_file_make_a_header() -> None:
    assert guess_header([["Urteil"], ["gut"]], known=["Urteil"])
    assert not guess_header([["Urteil"], ["gut"]])


def test_header_can_be_asked_for(write: Write) -> None:
    path = write("odd.csv", "yes,no\n1,2\n")
    assert open_table(path, has_header=True).columns == ("yes", "no")
    assert len(rows(open_table(path, has_header=False))) == 2


def test_column_without_a_name_is_called_by_its_number(write: Write) -> None:
    assert open_table(write("pandas.csv", ",text\n0,one\n1,two\n")).columns == ("1", "text")


def test_file_of_one_column_is_a_row_a_line(write: Write) -> None:
    table = open_table(write("texts.csv", "text\nHello, world.\nWell; so be it.\nYes, and, no.\n"))
    assert rows(table)[0]["text"] == "Hello, world."
    assert len(rows(table)) == 3


def test_two_columns_of_one_name_are_refused(write: Write) -> None:
    with pytest.raises(LitebertError, match="LB-842"):
        open_table(write("twice.csv", "text,label,label\na,b,c\n"))


def test_bad_rows_are_told_by_their_lines_and_the_others_stay(write: Write) -> None:
    content = "text,label\n" + "good,1\n" * 20 + "one,two,three\nshort\nnul\0,1\n" + "fine,2\n" * 20
    table = open_table(write("ragged.csv", content))
    assert problems(table) == [(22, "LB-843"), (23, "LB-843"), (24, "LB-844")]
    assert sum(not isinstance(row, LitebertError) for _, row in table.scan()) == 40
    with pytest.raises(LitebertError, match=r"ragged\.csv, line 22: 3 cells, not 2"):
        rows(table)


def test_quote_that_never_ends_is_told_by_the_line_where_it_begins(write: Write) -> None:
    good = '"so, it is",1\n' * 30
    table = open_table(write("open.csv", f'text,label\n{good}"never closed,1\n{"plain,2" * 3}'))
    assert problems(table) == [(32, "LB-845")]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[1]", "LB-313"),
        ('{"text": NaN}', "LB-312"),
        ('{"text": "a", "text": "b"}', "LB-312"),
        ("[" * 100_000, "LB-312"),
        ('{"text": "cut', "LB-312"),
    ],
)
def test_bad_line_of_json_is_told_and_the_others_stay(line: str, code: str, write: Write) -> None:
    good = json.dumps(PAIRS[0])
    table = open_table(write("rows.jsonl", f"{good}\n\n{line}\n{good}\n"))
    assert problems(table) == [(3, code)]
    assert [number for number, row in table.scan() if not isinstance(row, LitebertError)] == [1, 4]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("[1, 2", "LB-847"),
        ('[{"a": NaN}]', "LB-847"),
        ('[{"a": 1, "a": 2}]', "LB-847"),
        ("[" * 100_000, "LB-847"),
        ("3", "LB-848"),
        ('{"a": [1], "b": [2]}', "LB-848"),
        ("[1, 2]", "LB-848"),
    ],
)
def test_json_file_that_is_no_list_of_rows_is_refused(content: str, code: str, write: Write) -> None:
    with pytest.raises(LitebertError, match=code):
        rows(open_table(write("rows.json", content)))


def test_json_file_too_long_to_be_held_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_CHARACTERS", 100)
    with pytest.raises(LitebertError, match="LB-846") as caught:
        open_table(write("rows.json", json.dumps([{"text": "x" * 120}])))
    assert "jq -c" in caught.value.next


def test_questions_of_squad_are_rows(write: Write) -> None:
    question = {"id": "q", "question": "Who?", "answers": []}
    article = {"title": "T", "paragraphs": [{"context": "C", "qas": [question, question]}]}
    table = open_table(write("squad.json", json.dumps({"version": "2", "data": [article]})))
    assert rows(table) == [question | {"context": "C"}] * 2


@pytest.mark.parametrize("name", ["big.csv", "big.jsonl", "big.conll"])
def test_endless_line_is_refused_with_its_number(name: str, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_ROW_BYTES", 1 << 19)
    starts = {"big.csv": "text,label\na,b\n", "big.jsonl": '{"text": "a"}\n{}\n', "big.conll": "a O\n\n"}
    with pytest.raises(LitebertError, match="line 3: too long"):
        rows(open_table(write(name, starts[name].encode() + b"x" * (1 << 21))))


@pytest.mark.parametrize(
    ("content", "line"),
    [("text,label\nZürich,1\n".encode() + "Zürich,2\n".encode("latin-1"), 3), (COMMAS.encode("utf-16"), 1)],
)
def test_mixed_or_other_encodings_are_refused_with_the_line(content: bytes, line: int, write: Write) -> None:
    with pytest.raises(LitebertError, match=f"LB-309.*line {line}: not UTF-8") as caught:
        rows(open_table(write("mixed.csv", content)))
    assert "iconv" in caught.value.next


@settings(deadline=None, max_examples=80)
@given(content=st.binary(max_size=300), kind=st.sampled_from(["csv", "tsv", "jsonl", "json", "bio"]))
def test_any_bytes_give_rows_or_an_error_for_people(
    content: bytes, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{kind}"
    path.write_bytes(content)
    try:
        table = open_table(path)
        assert all(set(row) <= set(table.columns) for row in rows(table))
    except LitebertError as error:
        assert error.code.startswith("LB-")


@settings(deadline=None, max_examples=80)
@given(text=st.text("ab ,;|\t\"'\\\n\r\0\ufeff#", max_size=80))
def test_any_marks_between_cells_give_rows_or_an_error_for_people(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(f"text,label\n{text}".encode())
    try:
        list(open_table(path).scan())
    except LitebertError as error:
        assert error.code.startswith("LB-")


CONLL = """-DOCSTART- -X- O

# sent_id = 1
Anna NNP B-PER
went VBD O
# CD O

to TO O
Rome NNP B-LOC
"""


def test_words_are_read_with_the_tag_that_stands_last(write: Write) -> None:
    table = open_table(write("train.conll", CONLL.replace(" = ", " ")))
    assert table.columns == ("tokens", "tags")
    assert list(table.rows()) == [
        (4, {"tokens": ["Anna", "went", "#"], "tags": ["B-PER", "O", "O"]}),
        (8, {"tokens": ["to", "Rome"], "tags": ["O", "B-LOC"]}),
    ]


def test_words_alone_are_sentences_to_be_answered(write: Write) -> None:
    assert rows(open_table(write("new.bio", "Anna\nwent\n\n\nhome\n"))) == [
        {"tokens": ["Anna", "went"]},
        {"tokens": ["home"]},
    ]


def test_line_without_a_tag_spoils_its_sentence_alone(write: Write) -> None:
    table = open_table(write("train.iob", "Anna\tB-PER\nwent\n\nhome\tO\n"))
    assert problems(table) == [(1, "LB-852")]
    assert [number for number, row in table.scan() if not isinstance(row, LitebertError)] == [4]


def test_sentence_without_end_is_refused(write: Write) -> None:
    table = open_table(write("train.conll", "a O\n" * (MAX_WORDS + 5) + "\nb O\n"))
    assert problems(table)[0] == (1, "LB-849")


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("rows.xlsx", "x", "LB-840"),
        ("rows", "x", "LB-840"),
        ("rows.parquet.gz", "x", "LB-840"),
        ("rows.csv", "", "LB-853"),
        ("rows.csv", "\n\n\n", "LB-853"),
        ("rows.csv", "\ufeff", "LB-853"),
        ("rows.csv", "text,label\rso good,pos\r", "LB-845"),
        ("rows.csv", "text,label\n", "LB-853"),
        ("rows.jsonl", "\n", "LB-853"),
        ("rows.json", "[]", "LB-853"),
        ("rows.parquet", "no parquet at all", "LB-317"),
        ("rows.csv.gz", "not gzip", "LB-306"),
    ],
)
def test_file_without_rows_is_refused(name: str, content: str, code: str, write: Write) -> None:
    with pytest.raises(LitebertError, match=code):
        open_table(write(name, content)).sample()


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name in ("missing.csv", "folder.csv"):
        with pytest.raises(LitebertError, match="LB-303"):
            open_table(tmp_path / name)


def test_dialect_is_chosen_by_what_most_lines_agree_on() -> None:
    sample = ["a;b;c", "1,5;x, y, z;3", "2,5;plain;4"]
    assert guess_dialect(sample, kind=".csv").delimiter == ";"


@pytest.mark.parametrize("cell", [None, "", float("nan"), [], {}])
def test_nothing_is_no_text_and_no_label(cell: object) -> None:
    assert (text_of(cell), label_of(cell), number_of(cell)) == (None, None, None)


@pytest.mark.parametrize("cell", ["inf", "1e999", "1_000", "", "x", True, None, 10**400])
def test_what_is_no_finite_number_is_none(cell: object) -> None:
    assert number_of(cell) is None


def test_lone_surrogate_in_a_text_is_replaced() -> None:
    assert text_of(json.loads('"a\\ud800b"')) == "a\ufffdb"


@given(words=st.lists(st.text(min_size=1, max_size=8), max_size=6))
def test_list_that_python_or_json_wrote_is_read_back(words: list[str]) -> None:
    plain = [word for word in words if word.isprintable()]
    assert list_of(json.dumps(plain)) == plain
    assert list_of(repr(plain)) == plain


def test_list_of_numbers_is_read_however_it_is_written() -> None:
    assert [label_of(tag) for tag in list_of("[0 3  7]") or []] == ["0", "3", "7"]
    assert list_of("[0, 3]") == [0, 3]


@pytest.mark.parametrize("cell", ["[", "a b", "['a' b]", "['a", "", '{"a": 1}', None, 3])
def test_what_is_no_list_is_none(cell: object) -> None:
    assert list_of(cell) is None
