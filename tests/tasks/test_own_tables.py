"""Files of one's own as rows: every way of writing them, and what is wrong with a row."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.reading import source, tables
from litebert.reading.tables import MAX_WORDS
from litebert.tasks.own.table import TableFile, guess_header, label_of, list_of, number_of, open_table, text_of

from .conftest import Write

PAIRS = [{"text": "It was good, really.", "label": "pos"}, {"text": "No.", "label": "neg"}]


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
    "UPPER.CSV": COMMAS,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_same_rows_are_read_however_they_are_written(name: str, write: Write) -> None:
    table = open_table(write(name, WRITTEN[name]))
    assert table.columns == ("text", "label")
    assert rows(table) == PAIRS


FIRST_TEXTS = {
    "raw.tsv": ('text\tlabel\n"Yes," he said.\tpos\nA "so-called" film.\tneg\n', '"Yes," he said.'),
    "quoted.tsv": ('text\tlabel\n"Say ""yes""\tnow."\tpos\nNo.\tneg\n', 'Say "yes"\tnow.'),
    "escaped.csv": ("text,label\n" + '"He said \\"no\\", twice.",neg\n' * 3, 'He said "no", twice.'),
    "one-column.csv": ("text\nHello, world.\nWell; so be it.\nYes, and, no.\n", "Hello, world."),
}


@pytest.mark.parametrize("name", FIRST_TEXTS)
def test_quotes_and_delimiters_mean_what_the_file_means(name: str, write: Write) -> None:
    content, text = FIRST_TEXTS[name]
    assert rows(open_table(write(name, content)))[0]["text"] == text
    table = open_table(write("decimals.csv", "a;b;c\n1,5;x, y, z;3\n2,5;plain;4\n"))
    assert table.columns == ("a", "b", "c")


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


HEADERS = [
    (["text", "label"], [["a", "b"]], True),
    (["Meinung", "Note"], [["Es war sehr schön dort.", "1"], ["Nie wieder!", "5"]], True),
    (["Verdict", "Remark"], [[v, f"so it is {v}"] for v in ["yes", "no"] * 4], True),
    (["good", "5"], [["bad", "1"], ["fine", "5"]], False),
    (["pos", "A lovely film."], [["neg", "A dull one."], ["pos", "Again!"]], False),
    (["label", "A question."], [["text", "An answer."], ["label", "Another."]], False),
    (["one film I saw there", "x"], [["another film that I saw", "y"]], False),
    (["Urteil"], [["gut"]], False),
]


@pytest.mark.parametrize(("first", "rest", "is_header"), HEADERS)
def test_header_is_told_from_a_row(first: list[str], rest: list[list[str]], is_header: bool) -> None:
    assert guess_header([first, *rest]) is is_header
    assert guess_header([first, *rest], known=first[:1])  # a name that another file has


def test_columns_without_names_are_called_by_their_numbers(write: Write) -> None:
    table = open_table(write("bare.csv", "5,a fine film\n1,a dull film\n5,so good\n"))
    assert (table.columns, table.has_header, len(rows(table))) == (("1", "2"), False, 3)
    assert open_table(write("pandas.csv", ",text\n0,one\n1,two\n")).columns == ("1", "text")
    path = write("odd.csv", "yes,no\n1,2\n")
    assert open_table(path, has_header=True).columns == ("yes", "no")
    assert len(rows(open_table(path, has_header=False))) == 2


def test_bad_rows_are_told_by_their_lines_and_the_others_stay(write: Write) -> None:
    content = "text,label\n" + "good,1\n" * 20 + "one,two,three\nshort\nnul\0,1\n" + "fine,2\n" * 20
    table = open_table(write("ragged.csv", content))
    assert problems(table) == [(22, "LB-843"), (23, "LB-843"), (24, "LB-844")]
    assert sum(not isinstance(row, LitebertError) for _, row in table.scan()) == 40
    with pytest.raises(LitebertError, match=r"ragged\.csv, line 22: 3 cells, not 2"):
        rows(table)
    good = json.dumps(PAIRS[0])
    table = open_table(write("rows.jsonl", f'{good}\n\n[1]\n{{"text": "cut\n{good}\n'))
    assert problems(table) == [(3, "LB-848"), (4, "LB-312")]
    assert [number for number, row in table.scan() if not isinstance(row, LitebertError)] == [1, 5]
    table = open_table(write("lines.csv", 'text,label\n"one\ntwo",pos\n"three\n\nfour",neg\nfive,pos\n'))
    assert [number for number, _ in table.rows()] == [2, 4, 7]  # rows over several lines: the first
    good = '"so, it is",1\n' * 30
    assert problems(open_table(write("open.csv", f'text,label\n{good}"never closed,1\n{"plain,2" * 3}'))) == [
        (32, "LB-845")
    ]


REFUSED = [
    ("rows.json", "[1, 2", "LB-312"),
    ("rows.json", '[{"a": 1, "a": 2}]', "LB-312"),
    ("rows.json", "[" * 100_000, "LB-312"),
    ("rows.json", "3", "LB-848"),
    ("rows.json", '{"a": [1], "b": [2]}', "LB-848"),
    ("rows.json", "[1, 2]", "LB-848"),
    ("rows.json", "[]", "LB-853"),
    ("rows.xlsx", "x", "LB-304"),
    ("rows.parquet.gz", "x", "LB-304"),
    ("rows.csv", "", "LB-853"),
    ("rows.csv", "\ufeff", "LB-853"),
    ("rows.csv", "text,label\n", "LB-853"),
    ("rows.csv", "text,label\rso good,pos\r", "LB-845"),
    ("rows.csv", "text,label,label\na,b,c\n", "LB-842"),
    ("rows.jsonl", "\n", "LB-853"),
    ("rows.parquet", "no parquet at all", "LB-317"),
    ("rows.conll", "a O\n" * (MAX_WORDS + 5) + "\nb O\n", "LB-849"),
    ("rows.csv", COMMAS.encode("utf-16"), "LB-309.*line 1: not UTF-8"),
]


@pytest.mark.parametrize(
    ("name", "content", "code"), REFUSED, ids=[f"{n} {c[:6]} {i}" for i, (n, _, c) in enumerate(REFUSED)]
)
def test_file_that_cannot_be_read_is_refused(name: str, content: bytes | str, code: str, write: Write) -> None:
    with pytest.raises(LitebertError, match=code):
        table = open_table(write(name, content))
        table.sample()
        rows(table)


def test_what_is_missing_or_endless_is_refused(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name in ("missing.csv", "folder.csv"):
        with pytest.raises(LitebertError, match="LB-303"):
            open_table(tmp_path / name)
    monkeypatch.setattr(source, "MAX_ROW_BYTES", 1 << 19)
    for name, start in {"a.csv": "text,label\na,b\n", "a.jsonl": '{"text": "a"}\n{}\n', "a.conll": "a O\n\n"}.items():
        with pytest.raises(LitebertError, match="line 3: too long"):
            rows(open_table(write(name, start.encode() + b"x" * (1 << 21))))
    monkeypatch.setattr(tables, "MAX_CHARACTERS", 100)
    with pytest.raises(LitebertError, match=r"LB-846(.|\n)*jq -c"):
        open_table(write("rows.json", json.dumps([{"text": "x" * 120}])))


@settings(deadline=None, max_examples=100)
@given(
    content=st.binary(max_size=300) | st.text("ab ,;|\t\"'\\\n\r\0\ufeff#", max_size=80).map(str.encode),
    kind=st.sampled_from(["csv", "tsv", "jsonl", "json", "bio"]),
)
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


def test_questions_of_squad_are_rows(write: Write) -> None:
    question = {"id": "q", "question": "Who?", "answers": []}
    article = {"title": "T", "paragraphs": [{"context": "C", "qas": [question, question]}]}
    table = open_table(write("squad.json", json.dumps({"version": "2", "data": [article]})))
    assert rows(table) == [question | {"context": "C"}] * 2


def test_words_are_read_with_the_tag_that_stands_last(write: Write) -> None:
    content = "-DOCSTART- -X- O\n\n# sent_id 1\nAnna NNP B-PER\nwent VBD O\n# CD O\n\nto TO O\nRome NNP B-LOC\n"
    table = open_table(write("train.conll", content))
    assert list(table.rows()) == [
        (4, {"tokens": ["Anna", "went", "#"], "tags": ["B-PER", "O", "O"]}),
        (8, {"tokens": ["to", "Rome"], "tags": ["O", "B-LOC"]}),
    ]
    alone = open_table(write("new.bio", "Anna\nwent\n\n\nhome\n"))
    assert rows(alone) == [{"tokens": ["Anna", "went"]}, {"tokens": ["home"]}]
    assert problems(open_table(write("train.iob", "Anna\tB-PER\nwent\n\nhome\tO\n"))) == [(1, "LB-843")]


def test_cells_are_texts_labels_numbers_and_lists() -> None:
    for cell in (None, "", float("nan"), [], {}):
        assert (text_of(cell), label_of(cell), number_of(cell)) == (None, None, None)
    assert {number_of(cell) for cell in ("inf", "1e999", "1_000", "", "x", True, None, 10**400)} == {None}
    assert text_of(json.loads('"a\\ud800b"')) == "a\ufffdb"
    assert [label_of(tag) for tag in list_of("[0 3  7]") or []] == ["0", "3", "7"]
    assert {str(list_of(cell)) for cell in ("[", "a b", "['a' b]", "['a", "", '{"a": 1}', None, 3)} == {"None"}


@given(words=st.lists(st.text(min_size=1, max_size=8), max_size=6))
def test_list_that_python_or_json_wrote_is_read_back(words: list[str]) -> None:
    plain = [word for word in words if word.isprintable()]
    assert list_of(json.dumps(plain)) == list_of(repr(plain)) == plain
