"""Users' files of rows: formats, delimiters, quotes, headers and titles are guessed; bad
rows and files are refused by line.
"""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.reading import lines, tables
from litebert.reading.words import MAX_WORDS
from litebert.tasks.tables.cells import label_of, list_of, number_of, text_of
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.delimited import guess_dialect, guess_header
from litebert.tasks.tables.layouts import open_table
from litebert.tasks.tables.table import TableFile
from tests.tables import Write, numbered_reviews

PAIRS = [
    {"text": "It was good, really.", "label": "pos"},
    {"text": "No.", "label": "neg"},
]


def rows_of(table: TableFile) -> list[dict[str, object]]:
    return [dict(row) for _, row in table.rows()]


# ---- formats, delimiters and quotes --------------------------------------------------

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
    "rows.parquet": pd.DataFrame(PAIRS).to_parquet(),
    "rows.csv.gz": gzip.compress(COMMAS.encode()),
    "UPPER.CSV": COMMAS,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_same_rows_are_read_however_they_are_written(
    name: str, write: Write
) -> None:
    table = open_table(write(name, WRITTEN[name]))
    assert table.columns == ("text", "label")
    assert rows_of(table) == PAIRS


FIRST_TEXTS = {
    "raw.tsv": (
        'text\tlabel\n"Yes," he said.\tpos\nA "so-called" film.\tneg\n',
        '"Yes," he said.',
    ),
    "quoted.tsv": (
        'text\tlabel\n"Say ""yes""\tnow."\tpos\nNo.\tneg\n',
        'Say "yes"\tnow.',
    ),
    "escaped.csv": (
        "text,label\n" + '"He said \\"no\\", twice.",neg\n' * 3,
        'He said "no", twice.',
    ),
    # numbers with decimal commas
    "decimals.csv": ("text;b;c\n1,5;x, y, z;3\n2,5;plain;4\n", "1.5"),
    "thousands.tsv": ("text\tb\n1,500\tx, y, z\n12,500\tplain\n", "1,500"),
    # the character that stands for no delimiter
    "separator.csv": ('id,text\n"0","\n\x1f0"\n', "\n\x1f0"),
    "one-column.csv": (
        "text\nHello, world.\nWell; so be it.\nYes, and, no.\n",
        "Hello, world.",
    ),
}


@pytest.mark.parametrize("name", FIRST_TEXTS)
def test_quotes_and_delimiters_are_guessed_from_the_file(
    name: str, write: Write
) -> None:
    content, text = FIRST_TEXTS[name]
    assert rows_of(open_table(write(name, content)))[0]["text"] == text


@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(
        st.text(
            st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
            max_size=30,
        ),
        min_size=1,
        max_size=8,
    ),
    delimiter=st.sampled_from(",;\t|"),
)
def test_what_a_csv_library_writes_is_read_back(
    texts: list[str], delimiter: str, tmp_path_factory
) -> None:
    cells = list[str]()
    for text in texts:
        # a line of a file may end in any of these; spaces after a delimiter are skipped
        with_one_line_end = text.replace("\r\n", " ").replace("\r", " ")
        cells.append(with_one_line_end.lstrip(" "))
    kind = "tsv" if delimiter == "\t" else "csv"
    path = tmp_path_factory.getbasetemp() / f"rows.{kind}"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(
            file, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n"
        )
        writer.writerow(["id", "text", "label"])
        for number, cell in enumerate(cells):
            writer.writerow([number, cell, "a"])
    assert [row["text"] for row in rows_of(open_table(path))] == cells


# ---- headers, titles and lines that are no rows --------------------------------------


HEADERS = [
    pytest.param(["text", "label"], [["a", "b"]], id="usual names"),
    pytest.param(
        ["Meinung", "Note"],
        [["Es war sehr schön dort.", "1"], ["Nie wieder!", "5"]],
        id="a name above numbers",
    ),
    pytest.param(
        ["Verdict", "Remark"],
        [["yes", "so it is yes"], ["no", "so it is no"]] * 4,
        id="names that no row repeats",
    ),
]
FIRST_ROWS = [
    pytest.param(["good", "5"], [["bad", "1"], ["fine", "5"]], id="a number"),
    pytest.param(
        ["pos", "A lovely film."],
        [["neg", "A dull one."], ["pos", "Again!"]],
        id="a label that comes again",
    ),
    pytest.param(
        ["label", "A question."],
        [["text", "An answer."], ["label", "Another."]],
        id="a usual name that comes again",
    ),
    pytest.param(
        ["one film I saw there", "x"],
        [["another film that I saw", "y"]],
        id="a text",
    ),
    pytest.param(["Urteil"], [["gut"]], id="one column"),
]


@pytest.mark.parametrize(("first", "others"), HEADERS)
def test_a_header_is_recognized(first: list[str], others: list[list[str]]) -> None:
    assert guess_header([first, *others])


@pytest.mark.parametrize(("first", "others"), FIRST_ROWS)
def test_a_first_row_is_no_header(first: list[str], others: list[list[str]]) -> None:
    assert not guess_header([first, *others])


def test_columns_without_names_are_called_by_their_numbers(write: Write) -> None:
    table = open_table(write("bare.csv", "5,a fine film\n1,a dull film\n5,so good\n"))
    assert not table.has_header
    assert table.columns == ("1", "2")
    assert len(rows_of(table)) == 3


def test_one_column_without_a_name_is_called_by_its_number(write: Write) -> None:
    table = open_table(write("pandas.csv", ",text\n0,one\n1,two\n"))
    assert table.columns == ("1", "text")


def test_the_header_is_what_the_user_says(write: Write) -> None:
    path = write("odd.csv", "yes,no\n1,2\n")
    assert open_table(path, has_header=True).columns == ("yes", "no")
    assert len(rows_of(open_table(path, has_header=False))) == 2


@pytest.mark.parametrize(
    "above",
    [
        "\n\n",
        "# exported in May\n\n",
        "  \n",
        "\ufeff\n",
    ],
)
def test_blank_lines_above_a_table_do_not_make_its_names_a_row(
    write: Write, above: str
) -> None:
    path = write("my.csv", above + numbered_reviews())
    dataset = table_dataset(path, path)
    assert dataset.settled["labels"] == ["neg", "pos"]
    assert len(dataset.read(path, "train")) == 40


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    "title", ["Feedback of May\n", "Feedback{0}{0}\n{0}{0}\n", "By Jane\n\nMay\n\n"]
)
def test_a_title_above_a_table_is_passed_over(
    write: Write, title: str, delimiter: str
) -> None:
    table = [("Ticket ID", "Feedback text", "Sentiment")]
    for number in range(40):
        label = ("neg", "pos")[number % 2]
        table.append((f"T{number}", f"so good {number}", label))
    lines = [delimiter.join(row) for row in table]
    path = write("may.csv", title.format(delimiter) + "\n".join(lines))
    dataset = table_dataset(path, path)
    assert dataset.settled["columns"][:2] == ["text=Feedback text", "label=Sentiment"]
    assert dataset.settled["labels"] == ["neg", "pos"]
    assert len(dataset.read(path, "train")) == 40


def test_a_text_above_others_is_no_title() -> None:
    lines = ["so good", *["so bad, and so on"] * 9]
    assert guess_dialect(lines, kind=".csv").num_skipped == 0


@pytest.mark.parametrize("name", ["my.txt", "my.md"])
def test_the_rule_of_a_table_in_markdown_is_no_row(write: Write, name: str) -> None:
    lines = ["# Ours", "", "| text | label |", "| --- | :--: |"]
    for number in range(40):
        lines.append(f"| ball {number} | {('neg', 'pos')[number % 2]} |")
    path = write(name, "\n".join(lines))
    dataset = table_dataset(path, path)
    assert dataset.settled["labels"] == ["neg", "pos"]
    texts = [example.first.strip() for example in dataset.read(path, "train")]
    assert texts == [f"ball {n}" for n in range(40)]
    # nothing stands outside of the outer bars
    assert "not used" not in " ".join(dataset.notes)


# ---- bad rows and files --------------------------------------------------------------


GOOD = json.dumps(PAIRS[0])
MANY = "good,1\n" * 3
# A file, and the line of each row, with the error code of bad ones
BAD_ROWS = {
    "ragged.csv": (
        f"text,label\n{MANY}a,b,c\nshort\nnul\0,1\n{MANY}",
        "2 3 4 5:LB-843 6:LB-843 7:LB-844 8 9 10",
    ),
    "rows.jsonl": (f'{GOOD}\n\n[1]\n{{"text": "cut\n{GOOD}\n', "1 3:LB-848 4:LB-312 5"),
    "several-lines.csv": (
        'text,label\n"one\ntwo",pos\n"three\n\nfour",neg\nfive,pos\n',
        "2 4 7",
    ),
    "open.csv": (
        "text,label\n" + '"so, it is",1\n' * 4 + '"never closed,1\nplain,2',
        "2 3 4 5 6:LB-845",
    ),
    "train.iob": ("Anna\tB-PER\nwent\n\nhome\tO\n", "1:LB-843 4"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_reported_by_line_and_the_others_are_kept(
    name: str, write: Write
) -> None:
    content, expected = BAD_ROWS[name]
    lines = list[str]()
    for number, row in open_table(write(name, content)).scan():
        is_bad = isinstance(row, LitebertError)
        lines.append(f"{number}:{row.code}" if is_bad else str(number))
    assert lines == expected.split()


UNREADABLE = [
    pytest.param("rows.json", "[1, 2", "LB-312", id="an open list"),
    pytest.param(
        "rows.json",
        "[" * 100_000,
        "LB-312(?s:.*)received: nested too deeply",
        id="deep lists",
    ),
    pytest.param(
        "rows.jsonl",
        f'{{"text": {"9" * 5_000}}}',
        "LB-312(?s:.*)received: an integer has over 4,300 digits: {",
        id="a long integer",
    ),
    pytest.param("rows.json", "3", "LB-848", id="a number"),
    pytest.param("rows.json", '{"a": 1}', "LB-848", id="one object"),
    pytest.param("rows.json", "[1, 2]", "LB-848", id="a list of numbers"),
    pytest.param("rows.docx", "x", "LB-304", id="another kind"),
    pytest.param("rows.csv", "text,label\rso good,pos\r", "LB-845", id="old line ends"),
    pytest.param(
        "rows.parquet",
        pd.DataFrame({"text": ["a"], "labe": ["b"]})
        .to_parquet()
        .replace(b"labe", b"text"),
        "LB-842",
        id="two columns of one name",
    ),
    pytest.param(
        "rows.conll",
        "a O\n" * (MAX_WORDS + 5) + "\nb O\n",
        "LB-849",
        id="endless words",
    ),
    pytest.param("rows.json", "[]", "LB-853", id="an empty list"),
    pytest.param("rows.csv", "\ufeff", "LB-853", id="an empty table"),
    pytest.param("rows.jsonl", "\n", "LB-853", id="an empty line"),
    pytest.param("rows.csv", "text,label\n", "LB-853", id="a header alone"),
]


@pytest.mark.parametrize(("name", "content", "code"), UNREADABLE)
def test_a_file_that_cannot_be_read_is_refused(
    name: str, content: bytes | str, code: str, write: Write
) -> None:
    with pytest.raises(LitebertError, match=code):
        table = open_table(write(name, content))
        table.sample()
        rows_of(table)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-303"):
        open_table(tmp_path / "missing.csv")


def test_a_folder_with_the_name_of_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(LitebertError, match="LB-869"):
        open_table(tmp_path / "folder.csv")


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lines of more than half a MiB be too long."""
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 19)


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize(
    ("name", "two_lines"),
    [
        ("a.csv", b"text,label\na,b\n"),
        ("a.jsonl", b'{"text": "a"}\n{}\n'),
        ("a.conll", b"a O\n\n"),
    ],
)
def test_an_endless_line_is_refused(name: str, two_lines: bytes, write: Write) -> None:
    path = write(name, two_lines + b"x" * (1 << 21))
    with pytest.raises(LitebertError, match="line 3: too long"):
        rows_of(open_table(path))


@pytest.mark.usefixtures("short_lines")
def test_a_json_file_may_be_one_long_line(write: Write) -> None:
    content = json.dumps([{"text": "x" * (1 << 20)}])
    assert len(rows_of(open_table(write("rows.json", content)))) == 1


def test_a_json_file_that_is_too_large_is_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_JSON_BYTES", 100)
    path = write("rows.json", json.dumps([{"text": "x" * 120}]))
    with pytest.raises(LitebertError, match=r"LB-846(.|\n)*jq -c"):
        open_table(path)


@settings(deadline=None, max_examples=100)
@given(
    content=st.binary(max_size=300)
    | st.text("ab ,;|\t\"'\\\n\r\0\ufeff#", max_size=80).map(str.encode),
    kind=st.sampled_from(["csv", "tsv", "jsonl", "json", "bio"]),
)
def test_any_bytes_give_rows_or_a_litebert_error(
    content: bytes, kind: str, tmp_path_factory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{kind}"
    path.write_bytes(content)
    try:
        table = open_table(path)
        for _, row in table.scan():
            assert isinstance(row, LitebertError) or set(row) <= set(table.columns)
    except LitebertError as error:
        assert error.code.startswith("LB-")


# ---- words with tags -----------------------------------------------------------------


def tagged(table: TableFile) -> list[dict[str, object]]:
    """Return the words and tags of each row, without the columns of the file."""
    sentences = list[dict[str, object]]()
    for row in rows_of(table):
        sentences.append({n: row[n] for n in ("tokens", "tags") if n in row})
    return sentences


def test_words_are_read_with_the_tag_in_the_last_column(write: Write) -> None:
    lines = [
        "-DOCSTART- -X- O",
        "",
        "# sent_id 1",
        "Anna NNP B-PER",
        "went VBD O",
        "# CD O",
        "",
        "to TO O",
        "Rome NNP B-LOC",
    ]
    table = open_table(write("train.conll", "\n".join(lines)))
    assert [number for number, _ in table.rows()] == [4, 8]
    assert tagged(table) == [
        {"tokens": ["Anna", "went", "#"], "tags": ["B-PER", "O", "O"]},
        {"tokens": ["to", "Rome"], "tags": ["O", "B-LOC"]},
    ]


def test_notes_between_words_are_no_words(write: Write) -> None:
    lines = "# id a\tdomain=b\nAnna NNP - B-PER\n# sent_id = 2\n# CD - O\n"
    table = open_table(write("noted.conll", lines))
    assert tagged(table) == [{"tokens": ["Anna", "#"], "tags": ["B-PER", "O"]}]


def test_words_may_have_no_tags(write: Write) -> None:
    table = open_table(write("new.bio", "Anna\nwent\n\n\nhome\n"))
    assert tagged(table) == [{"tokens": ["Anna", "went"]}, {"tokens": ["home"]}]


# ---- cells ---------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [None, "", float("nan"), [], {}], ids=repr)
def test_an_empty_cell_has_no_text_label_or_number(cell: Any) -> None:
    assert text_of(cell) is None
    assert label_of(cell) is None
    assert number_of(cell) is None


@pytest.mark.parametrize(
    "cell", ["inf", "1e999", "1e39", "1_000", "", "x", True, None, 10**400]
)
def test_what_float32_cannot_hold_or_is_not_written_as_a_number_is_none(
    cell: Any,
) -> None:
    assert number_of(cell) is None


def test_half_a_character_is_replaced() -> None:
    assert text_of(json.loads('"a\\ud800b"')) == "a\ufffdb"


@pytest.mark.parametrize("write_list", [json.dumps, repr])
def test_lists_are_read_as_json_and_python_write_them(write_list: Any) -> None:
    words = ["it's", 'a "b"', "c, d", "\\ né"]
    assert list_of(write_list(words)) == words


def test_a_list_of_numbers_is_read_as_numpy_writes_it() -> None:
    tags = list_of("[0 3  7]")
    assert tags is not None
    assert [label_of(tag) for tag in tags] == ["0", "3", "7"]


@pytest.mark.parametrize(
    "cell", ["[", "a b", "['a' b]", "['a", "", '{"a": 1}', None, 3], ids=repr
)
def test_other_cells_hold_no_list(cell: Any) -> None:
    assert list_of(cell) is None
