"""Users' own files as data sets: formats of rows, columns, every kind of problem,
splits, refusals.
"""

import csv
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.config import TaskConfig, TaskDataConfig
from litebert.errors import LitebertError
from litebert.reading import source, tables
from litebert.reading.words import MAX_WORDS
from litebert.tasks.check import check_files
from litebert.tasks.kinds.choice import ChoiceExample
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, SpanAnswering
from litebert.tasks.kinds.tagging import TagExample
from litebert.tasks.kinds.text import Scores, TextExample
from litebert.tasks.kinds.text_rows import TextRows
from litebert.tasks.named import open_dataset
from litebert.tasks.tables.cells import (
    label_of,
    list_of,
    number_of,
    text_of,
)
from litebert.tasks.tables.columns import Columns, chosen_columns
from litebert.tasks.tables.dataset import require_same_data, table_dataset
from litebert.tasks.tables.delimited import guess_dialect, guess_header
from litebert.tasks.tables.held_out import draw_held_out
from litebert.tasks.tables.layouts import open_table
from litebert.tasks.tables.rows import TrainingRows, guess_columns
from litebert.tasks.tables.settling import problems
from litebert.tasks.tables.table import TableFile
from tests.tables import Write, jsonl

STORY = "Anna took a red ball to the river in the morning."

PAIRS = [
    {"text": "It was good, really.", "label": "pos"},
    {"text": "No.", "label": "neg"},
]


def rows(table: TableFile) -> list[dict[str, object]]:
    return [dict(row) for _, row in table.rows()]


def tagged(table: TableFile) -> list[dict[str, object]]:
    """Return the words and tags of each row, without the columns of the file."""
    named = ("tokens", "tags")
    return [{name: row[name] for name in named if name in row} for row in rows(table)]


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
    assert table.columns == ("text", "label") and rows(table) == PAIRS


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
    assert rows(open_table(write(name, content)))[0]["text"] == text


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
    cells = [text.replace("\r\n", " ").replace("\r", " ").lstrip(" ") for text in texts]
    path = tmp_path_factory.getbasetemp() / (
        "rows.tsv" if delimiter == "\t" else "rows.csv"
    )
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(
            file, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n"
        )
        writer.writerow(["id", "text", "label"])
        writer.writerows([number, text, "a"] for number, text in enumerate(cells))
    assert [row["text"] for row in rows(open_table(path))] == cells


HEADERS = [
    (["text", "label"], [["a", "b"]], True),
    (
        ["Meinung", "Note"],
        [["Es war sehr schön dort.", "1"], ["Nie wieder!", "5"]],
        True,
    ),
    (["Verdict", "Remark"], [[v, f"so it is {v}"] for v in ["yes", "no"] * 4], True),
    (["good", "5"], [["bad", "1"], ["fine", "5"]], False),
    (["pos", "A lovely film."], [["neg", "A dull one."], ["pos", "Again!"]], False),
    (["label", "A question."], [["text", "An answer."], ["label", "Another."]], False),
    (["one film I saw there", "x"], [["another film that I saw", "y"]], False),
    (["Urteil"], [["gut"]], False),
]


@pytest.mark.parametrize(("first", "others", "is_header"), HEADERS)
def test_a_header_is_distinguished_from_a_row(
    first: list[str], others: list[list[str]], is_header: bool
) -> None:
    assert guess_header([first, *others]) is is_header


def test_columns_without_names_are_called_by_their_numbers(write: Write) -> None:
    table = open_table(write("bare.csv", "5,a fine film\n1,a dull film\n5,so good\n"))
    assert not table.has_header
    assert table.columns == ("1", "2")
    assert len(rows(table)) == 3


def test_one_column_without_a_name_is_called_by_its_number(write: Write) -> None:
    table = open_table(write("pandas.csv", ",text\n0,one\n1,two\n"))
    assert table.columns == ("1", "text")


def test_the_header_is_what_the_user_says(write: Write) -> None:
    path = write("odd.csv", "yes,no\n1,2\n")
    assert open_table(path, has_header=True).columns == ("yes", "no")
    assert len(rows(open_table(path, has_header=False))) == 2


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
    ("rows.json", "[1, 2", "LB-312"),
    ("rows.json", "[" * 100_000, "LB-312(?s:.*)received: nested too deeply"),
    (
        "rows.jsonl",
        f'{{"text": {"9" * 5_000}}}',
        "LB-312(?s:.*)received: an integer has over 4,300 digits: {",
    ),
    *(("rows.json", content, "LB-848") for content in ("3", '{"a": 1}', "[1, 2]")),
    ("rows.docx", "x", "LB-304"),
    ("rows.csv", "text,label\rso good,pos\r", "LB-845"),
    (
        "rows.parquet",
        pd.DataFrame({"text": ["a"], "labe": ["b"]})
        .to_parquet()
        .replace(b"labe", b"text"),
        "LB-842",
    ),
    ("rows.conll", "a O\n" * (MAX_WORDS + 5) + "\nb O\n", "LB-849"),
    *(
        (f"rows.{kind}", text, "LB-853")
        for kind, text in (("json", "[]"), ("csv", "\ufeff"), ("jsonl", "\n"))
    ),
    ("rows.csv", "text,label\n", "LB-853"),
]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [pytest.param(*case, id=str(case[1][:9])) for case in UNREADABLE],
)
def test_file_that_cannot_be_read_is_refused(
    name: str, content: str, code: str, write: Write
) -> None:
    with pytest.raises(LitebertError, match=code):
        table = open_table(write(name, content))
        table.sample()
        rows(table)


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
    monkeypatch.setattr(source, "MAX_LINE_BYTES", 1 << 19)


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
        rows(open_table(path))


@pytest.mark.usefixtures("short_lines")
def test_a_json_file_may_be_one_long_line(write: Write) -> None:
    content = json.dumps([{"text": "x" * (1 << 20)}])
    assert len(rows(open_table(write("rows.json", content)))) == 1


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


def test_words_are_read_with_the_tag_in_the_last_column(write: Write) -> None:
    content = (
        "-DOCSTART- -X- O\n\n# sent_id 1\nAnna NNP B-PER\nwent VBD O\n# CD O\n\nto TO"
        " O\nRome NNP B-LOC\n"
    )
    table = open_table(write("train.conll", content))
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


def test_cells_are_read_as_texts_labels_numbers_and_lists() -> None:
    for cell in (None, "", float("nan"), [], {}):
        assert (text_of(cell), label_of(cell), number_of(cell)) == (None, None, None)
    assert {
        number_of(cell)
        for cell in ("inf", "1e999", "1e39", "1_000", "", "x", True, None, 10**400)
    } == {None}
    assert text_of(json.loads('"a\\ud800b"')) == "a\ufffdb"
    assert [label_of(tag) for tag in list_of("[0 3  7]") or []] == ["0", "3", "7"]
    assert {
        str(list_of(cell))
        for cell in ("[", "a b", "['a' b]", "['a", "", '{"a": 1}', None, 3)
    } == {"None"}
    words = ["it's", 'a "b"', "c, d", "\\ né"]
    assert list_of(json.dumps(words)) == list_of(repr(words)) == words


KINDS: dict[str, Sequence[object]] = {
    "long": [
        "It was a very fine day.",
        "Nobody came to see it.",
        "So we all went home.",
        "And slept well.",
    ],
    "other": [
        "The day was fine.",
        "They did not come.",
        "At home we were.",
        "We were asleep, all of us.",
    ],
    "few": ["a", "b", "a", "b"],
    "truth": [True, False, True, False],
    "number": [1, 2, 3, 4],
    "digit": ["5", "1", "5", "2"],
    "fraction": ["0.5", "2.25", "1.0", "4.75"],
    "letter": ["A", "B", "C", "D"],
    "letter2": ["A", "B", "A", "A"],
    "date": ["2024-01-01", "2024-01-02", "2024-01-01", "2024-01-02"],
    "name": ["Anna Brown", "Bert Blue", "Carl Carlson", "Dora Doe"],
    "list": [["a", "b", "c", "d"]] * 4,
    "named": [{"label": ["A", "B"], "text": ["x", "y"]}] * 4,
    "span": [{"text": ["fine"], "answer_start": [11]}] * 4,
}


def guessed(columns: str, *words: str) -> str:
    kinds = dict(column.split(":") for column in columns.split())
    rows = [{name: KINDS[kind][n] for name, kind in kinds.items()} for n in range(4)]
    chosen = chosen_columns(words, list(kinds))
    readings = list(dict.fromkeys(problems().values()))
    reading, assigned = guess_columns(list(kinds), rows, chosen, readings, TextRows)
    return " ".join([f"{reading.what}:", *assigned.words()])


# The columns and what is guessed for them; the roles after a bar are given, not guessed
GUESSES = """
sentence:long label:few -> texts: text=sentence label=label
ID:few gold_label:few premise:long hypothesis:other -> texts: text=premise second=hypothesis label=gold_label id=ID
question:other passage:long answer:truth -> texts: text=question second=passage label=answer
sentence_A:long sentence_B:other relatedness_score:fraction -> texts: text=sentence_A second=sentence_B label=relatedness_score
Review-Text:long Rating:digit Date:other -> texts: text=Review-Text label=Rating
id:number tokens:list pos_tags:list ner_tags:list -> words: tokens=tokens tags=ner_tags id=id
words:long labels:other -> words: tokens=words tags=labels
id:few title:long context:long question:other answers:span -> spans: question=question context=context answers=answers id=id
question:other context:long answer_text:few answer_start:number -> spans: question=question context=context answers=answer_text start=answer_start
article:long question:other options:list answer:letter -> choices: question=question context=article choices=options label=answer
sent1:long sent2:other ending0:few ending1:long ending2:other label:few -> choices: question=sent2 context=sent1 choices=ending0,ending1,ending2 label=label
goal:long sol1:other sol2:long label:few -> choices: question=goal choices=sol1,sol2 label=label
id:number question:other choices:named answerKey:letter -> choices: question=question choices=choices label=answerKey id=id
question:long A:few B:long C:other D:few answer:letter -> choices: question=question choices=A,B,C,D label=answer
kommentar:long urteil:few -> texts: text=kommentar label=urteil
1:few 2:long -> texts: text=2 label=1
kommentar:long wert:fraction nummer:number -> texts: text=kommentar label=wert
frage:long output:other -> pairs of texts that belong together: text=frage second=output
sentence:long notes:other label:few mine:letter -> texts: text=notes label=mine | text label
premise:long hypothesis:other label:few -> texts: text=premise label=label | text
satz:long marken:other label:few -> words: tokens=satz tags=marken | tokens tags
eins:long zwei:other urteil:few -> texts: text=eins second=zwei label=urteil
Größe:few Anfrage:long Abteilung:letter2 -> texts: text=Anfrage label=Abteilung
Date:date Customer-comment:long Tags:few Rating(1-5):digit -> texts: text=Customer-comment label=Rating(1-5)
left-text:long right-text:other closeness:fraction -> texts: text=left-text second=right-text label=closeness
Name:name Feedback:long SentimentLabel:few -> texts: text=Feedback label=SentimentLabel
text:long toxic:few rude:few -> texts: text=text label=toxic,rude | label
"""  # noqa: E501


@pytest.mark.parametrize("line", GUESSES.strip().splitlines())
def test_the_roles_of_columns_are_guessed(line: str) -> None:
    columns, _, result = line.partition(" -> ")
    words, _, roles = result.partition(" | ")
    assert (
        guessed(
            columns,
            *(
                word
                for word in words.split()[1:]
                if word.partition("=")[0] in roles.split()
            ),
        )
        == words
    )


@pytest.mark.parametrize(
    ("columns", "words", "what", "advice"),
    [
        (
            "text:long one:few two:few",
            "",
            "LB-854.*one and two could be it",
            "--column label=two",
        ),
        (
            "text:long one:truth two:truth",
            "",
            "LB-854.*one and two could be it",
            "--column label=one,two",
        ),
        ("text:long $one:few $two:few", "", "LB-854", "--column 'label=$two'"),
        (
            "words:long ner:other",
            "tokens=words label=ner",
            "LB-841: these rows have no label",
            "omit",
        ),
        ("review:long label:few", "text=reveiw", "LB-851", "did you mean review?"),
        *(
            ("a:long", word, "LB-850", "--column text=NAME")
            for word in ("text", "=a", "text=", "color=a")
        ),
    ],
)
def test_columns_that_are_unclear_are_refused(
    columns: str, words: str, what: str, advice: str
) -> None:
    with pytest.raises(LitebertError, match=what) as caught:
        guessed(columns, *words.split())
    assert advice in caught.value.next


DECIDED: list[tuple[str, list[Any], str]] = [
    ("label", ["0", "1", "1", "0"], "classification"),
    ("label", [0.0, 1.0, 1.0, 0.0], "classification"),
    ("stars", ["1", "2", "3", "4", "5"] * 9, "classification"),
    ("score", ["0.5", "3.25", "4"], "regression"),
    ("wert", ["994", "1.018", "1.250"], "regression in doubt"),  # German thousands?
    ("intent", [str(n % 77) for n in range(500)], "classification"),
    ("similarity", [str(n % 77) for n in range(500)], "regression"),
    ("year", [str(n) for n in range(400)], "regression"),
    ("tags", [["a"], ["a", "b"], []], "multi-label"),
    ("tags", ['["a", "b"]', "[]"], "multi-label"),
    ("label", [["a"], ["b"]], "classification"),
]


@pytest.mark.parametrize(("name", "cells", "problem"), DECIDED)
def test_labels_decide_the_kind_of_problem(
    name: str, cells: list[Any], problem: str
) -> None:
    rows = [{name: cell} for cell in cells]
    columns = Columns({"label": (name,)})
    reading, about = TextRows.settle(TrainingRows("a.csv", lambda: rows, columns))
    assert reading.problem + " in doubt" * ("warning: 1.018" in about) == problem


# ---- from file to examples -----------------------------------------------------------


def reviews(number: int = 40) -> str:
    return "text,label\n" + "".join(
        f"ball {n},{('neg', 'pos')[n % 2]}\n" for n in range(number)
    )


def questions(*, is_impossible: bool) -> str:
    question = {
        "question": "What?",
        "answers": [{"text": "red ball", "answer_start": 12}],
    }
    pair = [question, question | {"answers": []} if is_impossible else question]
    paragraphs = [{"context": f"{STORY} {n}", "qas": pair} for n in range(10)]
    return json.dumps(
        {"version": "2", "data": [{"title": "T", "paragraphs": paragraphs}]}
    )


def test_guesses_are_listed_in_the_notes(write: Write) -> None:
    path = write(
        "my.csv", "when;review;stars\n" + "1999;so good;5\n2001;so bad;1\n" * 9
    )
    assert table_dataset(path).notes == (
        f"{path}: semicolons between cells, names in the first line",
        "columns: text=review label=stars; not used: when",
        "problem: classification; 2 labels: 1 (9), 5 (9)",
        "evaluated on: about 10 % of the rows; equal texts stay together",
    )
    rows = [
        {"a": "A man is asleep.", "b": f"He dreams of {n}.", "label": "yn"[n % 2]}
        for n in range(20)
    ]
    del rows[0]["b"]  # a column need not be in the first row
    path = write("pairs.jsonl", jsonl(rows))
    warning = (
        "warning: not used, though it looks like text: a; for pairs: --column text=a"
        " --column second=b"
    )
    assert warning in table_dataset(path).notes
    for columns in (["text=b"], ["text=a", "second=b"]):
        assert not any(
            "warning" in note for note in table_dataset(path, columns=columns).notes
        )


def test_a_second_file_without_names_is_told_which_columns_to_give(
    write: Write,
) -> None:
    dataset = table_dataset(write("train.csv", reviews()))
    lines = reviews().splitlines()[1:]
    bare = write("bare.csv", "\n".join(lines))
    for split in ("dev", "test"):
        with pytest.raises(LitebertError, match=r"LB-897: .*no names of col") as caught:
            dataset.read(bare, split)
    advice = "--column text=1 --column label=2 --column header=no"
    assert caught.value.next == advice
    columns = [word for word in advice.split() if "=" in word]
    advised = table_dataset(Path("gone.csv"), columns=columns, settled=dataset.settled)
    assert len(advised.read(bare, "dev")) == 40
    # its first line has names, but others
    other = write("other.csv", reviews().replace("text,label", "review,verdict"))
    with pytest.raises(LitebertError, match="LB-851"):
        dataset.read(other, "test")


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
    path = write("my.csv", above + reviews())
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
    names = ["Ticket ID", "Feedback text", "Sentiment"]
    cells = [[f"T{n}", f"so good {n}", ("neg", "pos")[n % 2]] for n in range(40)]
    lines = [delimiter.join(row) for row in (names, *cells)]
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
    rows = [f"| ball {n} | {('neg', 'pos')[n % 2]} |" for n in range(40)]
    table = ["# Ours", "", "| text | label |", "| --- | :--: |", *rows]
    path = write(name, "\n".join(table))
    dataset = table_dataset(path, path)
    assert dataset.settled["labels"] == ["neg", "pos"]
    texts = [example.first.strip() for example in dataset.read(path, "train")]
    assert texts == [f"ball {n}" for n in range(40)]


RATINGS = {
    "Amazon": "{}.0 out of 5 stars",
    "words": "{} stars",
    "fractions": "{}/5",
    "signs": "★★★★★☆☆☆☆☆",
    "numbers": "{}",
}


@pytest.mark.parametrize("name", RATINGS)
def test_ratings_are_classes_with_a_note_or_scores(write: Write, name: str) -> None:
    lines = ["text,rating"]
    for number in range(60):
        stars = number % 5 + 1
        cell = RATINGS[name].format(stars)
        if name == "signs":
            cell = cell[5 - stars : 10 - stars]
        lines.append(f"a film of its year {number},{cell}")
    path = write("films.csv", "\n".join(lines))
    as_classes = " ".join(table_dataset(path).notes)
    assert "5 labels" in as_classes
    assert "their order is not used: --problem regression" in as_classes
    scored = table_dataset(path, path, problem="regression")
    labels = [example.label for example in scored.read(path, "train")]
    assert labels == [float(number % 5 + 1) for number in range(60)]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("8/10", "warning: 4/5 and 8/10 are read as 4 and 8; write all ratings on one"),
        ("7 out of 10 points", "warning: 4/5 and 7 out of 10 points are read as 4 and"),
        ("2.5 of 5 stars", ""),
        ("3 stars", ""),
        ("3", ""),
    ],
)
def test_ratings_on_two_scales_are_warned_of(
    write: Write, other: str, said: str
) -> None:
    lines = ["text,rating", *["so good,4/5"] * 20, *[f"so so,{other}"] * 20]
    path = write("films.csv", "\n".join(lines))
    (note,) = [
        note
        for note in table_dataset(path, problem="regression").notes
        if note.startswith("problem")
    ]
    assert said in note
    assert ("warning" in note) == bool(said)


def test_notes_stay_on_a_line_whatever_files_columns_and_labels_are_called(
    write: Write,
) -> None:
    rows = ['good,"a\nb"', "bad,c"] * 20
    path = write("my\nfile.csv", "\n".join(["text,label", *rows]))
    notes = table_dataset(path).notes
    assert not any("\n" in note for note in notes)
    assert notes[0].partition(": ")[0].endswith(r"my\nfile.csv")
    assert r"a\nb (20)" in " ".join(notes)
    lines = str(check_files(path)).splitlines()
    assert [line for line in lines if line.endswith(r"my\nfile.csv: 40 rows")]


@pytest.mark.parametrize("cell", ["1,018", "7/5", "3 apples", "2024/12/31", "/5"])
def test_what_is_no_rating_is_no_score(write: Write, cell: str) -> None:
    path = write("films.csv", "text;rating\n" + "so good;4/5\n" * 20 + f"bad;{cell}\n")
    with pytest.raises(LitebertError, match=r"LB-859.*line 22"):
        table_dataset(path, path, problem="regression").read(path, "train")


def read_examples(write: Write, name: str, content: str, **chosen: Any) -> list[Any]:
    path = write(name, content)
    return table_dataset(path, path, **chosen).read(path, "train")


CHOICE_HEAD = "question,A,B,C,answer\nWhat?,ball,map,river,C\n"
FEWER = CHOICE_HEAD + "Who?,Anna,Bert,,B\n"
NAMED_CHOICES = {
    "question": "What?",
    "choices": {"text": ["ball", "map"], "label": ["x", "y"]},
    "answerKey": "y",
}
MARKS = "text,toxic,rude\n"
IN_COLUMNS = {"columns": ["label=toxic,rude"]}
SETS = {"problem": "multi-label"}
SKIPS = {"skips_unlabeled": True}
TWO = jsonl([{"text": "a", "label": 0}, {"text": None, "label": 1}])
OPTIONS = {"question": "What?", "options": ["ball", "map", "river"]}
SIZE = {"columns": ["label=größe"]}
SPELT = [
    [0, 2, 1],
    ["1", "3", "2"],
    ["A", "C", "B"],
    ["a", "c", "b"],
    ["ball", "river", "map"],
]
CELLS = "words,tags\n\"['Anna', 'took']\",\"['B-PER', 'O']\"\n"
# A file, the options, and the labels of all rows or the last example
READ: dict[str, tuple[str, str, dict[str, Any], Any]] = {
    "numbers by their own order": (
        "r.csv",
        "text,label\nten,10\nnine,9\nagain,9\n",
        {},
        [1, 0, 0],
    ),
    "sets in a cell": (
        "r.csv",
        "text,label\none,red|old\ntwo,\nthree,old\n",
        SETS,
        [(0, 1), (), (0,)],
    ),
    "a column for each": (
        "r.csv",
        MARKS + "one,1.0,no\ntwo,0,\nthree,1,True\n",
        IN_COLUMNS,
        [(0,), (), (0, 1)],
    ),
    **{
        f"choices {x}": (
            "c.jsonl",
            jsonl([OPTIONS | {"answer": y} for y in x]),
            {},
            [0, 2, 1],
        )
        for x in SPELT
    },
    "accents in two forms": (
        "r.csv",
        "text,gro\u0308ße\na,schön\nb,scho\u0308n\nc,öde\n",
        SIZE,
        [0, 0, 1],
    ),
    "accents of a key": (
        "r.jsonl",
        jsonl({"text": x, "gro\u0308ße": x} for x in "abba"),
        SIZE,
        [0, 1, 1, 0],
    ),
    "words": (
        "t.csv",
        "words,tags\nAnna took,B-PER O\n",
        {},
        TagExample("2", ("Anna", "took"), (0, 1)),
    ),
    "lists in cells": ("t.csv", CELLS, {}, TagExample("2", ("Anna", "took"), (0, 1))),
    "named choices": (
        "c.jsonl",
        jsonl([NAMED_CHOICES]),
        {},
        ChoiceExample("1", "", "What?", ("ball", "map"), 1),
    ),
    "fewer choices": (
        "c.csv",
        FEWER,
        {},
        ChoiceExample("3", "", "Who?", ("Anna", "Bert"), 1),
    ),
    "no text": ("r.jsonl", TWO, {}, TextExample("2", "", None, 1)),
    "a choice without a label": (
        "c.jsonl",
        jsonl(OPTIONS | {"answer": x} for x in ("A", "C", None)),
        SKIPS,
        [0, 2],
    ),
    "a column named twice": (
        "r.csv",
        MARKS + "a,1,0\nb,0,1\n",
        {"columns": ["label=toxic,toxic,rude"]},
        [(0,), (1,)],
    ),
    "ids that repeat": (
        "r.csv",
        "id,text,label\nx,a,pos\nx,b,neg\n",
        {},
        TextExample("3", "b", None, 0),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_rows_become_examples(name: str, write: Write) -> None:
    file, content, chosen, wanted = READ[name]
    read = read_examples(write, file, content, **chosen)
    assert (
        [example.label for example in read] if isinstance(wanted, list) else read[-1]
    ) == wanted


ANSWERS: list[dict[str, Any]] = [
    {"answers": [{"text": "red ball", "answer_start": 12}]},
    {"answers": {"text": "red ball", "answer_start": 12}},
    {"answers": json.dumps({"text": ["red ball"], "answer_start": [12]})},
    {"answer": "red ball", "answer_start": "12"},
    {"answers": ["red ball"], "answer_start": [12]},
    # the first place where it is found
    {"answers": ["red ball"], "answer_start": [None]},
]


@pytest.mark.parametrize("answers", ANSWERS)
def test_answers_are_read_however_they_are_laid_out(
    answers: dict[str, Any], write: Write
) -> None:
    row = jsonl([{"question": "What?", "context": STORY, **answers}])
    (example,) = read_examples(write, "q.jsonl", row, problem="question-answering")
    assert [(gold.text, gold.start) for gold in example.answers] == [("red ball", 12)]


TAGS = jsonl(
    [
        {"tokens": ["a", "b"], "tags": ["O", "B-X"]},
        {"tokens": ["a"], "tags": ["O", "O"]},
    ]
)


NOT_THERE = jsonl([{"question": "?", "context": STORY, "answer": "blue ball"}] * 2)


REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "no labels": (
        "r.csv",
        "text,price\none day,€3\nso be it,€4\nso on,€5\nwell,€6\n",
        {},
        "LB-861(.|\n)*no units",
    ),
    "one label": ("r.csv", "text,label\nso good,pos\nso bad,pos\n", {}, "LB-856"),
    "only labels": (
        "r.csv",
        "text,label\n" + "".join(f"so good,{n}x\n" for n in range(99)),
        {},
        "LB-862(.|\n)*1234.5",
    ),
    "no score": (
        "r.csv",
        "text,score\nso good,1.5\nso bad,none\n",
        {"problem": "regression"},
        "LB-859",
    ),
    "nan": (
        "r.csv",
        "text,score\n" + "so,0.5\nno,1.5\n" * 30 + "nan,nan\n",
        {},
        "LB-859.*line 62",
    ),
    "infinite": (
        "r.jsonl",
        '{"text": "so", "label": 1}\n{"text": "no", "label": 2}\n' * 20
        + '{"text": "no", "label": 1e400}\n',
        {},
        "LB-857.*line 41: there is no label",
    ),
    "nan among classes": (
        "r.csv",
        "text,label\n" + "so,0\nno,1\n" * 30 + "nan,nan\n",
        {},
        "LB-857.*line 62",
    ),
    "nothing": (
        "r.csv",
        reviews() + "nothing said,\n",
        {},
        "LB-857.*line 42: there is no label",
    ),
    "no mark": ("r.csv", MARKS + "one,maybe,0\n", IN_COLUMNS, "LB-860.*line 2"),
    "a tag too many": ("t.jsonl", TAGS, {}, r"LB-863: .*line 2: .*\n.*1 words, 2 tags"),
    "one choice": (
        "c.csv",
        CHOICE_HEAD + "Who?,Anna,,,A\n",
        {},
        "LB-864: .*line 3(.|\n)*2 or more",
    ),
    "marks of another problem": (
        "r.csv",
        MARKS + "one,1,0\n",
        IN_COLUMNS | {"problem": "regression"},
        "LB-892",
    ),
    "0 or 1 first": (
        "c.csv",
        CHOICE_HEAD.replace("C\n", "1\n") + "Who?,Anna,Bert,Cid,2\n",
        {},
        "LB-893",
    ),
    "a misspelt choice": (
        "c.jsonl",
        jsonl(OPTIONS | {"answer": x} for x in "ABCE"),
        {},
        "LB-865: .*line 4",
    ),
    "no label in any row": (
        "r.jsonl",
        jsonl([{"text": "so be it", "tags": []}] * 2),
        SETS,
        "LB-856",
    ),
    "a list as text": (
        "r.jsonl",
        jsonl({"text": ["a", "b"], "label": x} for x in "xy"),
        {},
        "LB-824: .*line 1",
    ),
    "no such choice": (
        "c.csv",
        CHOICE_HEAD + "Who?,Anna,Bert,,C\n",
        {},
        "LB-865: .*line 3",
    ),
    "an answer that is not there": (
        "q.jsonl",
        NOT_THERE,
        {"problem": "question-answering"},
        "LB-802: .*line 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_cannot_be_learnt_are_refused(name: str, write: Write) -> None:
    file, content, chosen, code = REFUSED[name]
    with pytest.raises(LitebertError, match=code):
        read_examples(write, file, content, **chosen)


def test_other_files_are_read_as_the_training_file_was(write: Write) -> None:
    train = write("train.csv", reviews(20))
    dev = write("dev.csv", reviews(6))
    dataset = table_dataset(train, dev)
    assert len(dataset.read(train, "train")) == 20
    assert len(dataset.read(train, "dev")) == len(dataset.read(dev, "dev")) == 6
    # settings suffice without the training file
    recalled = table_dataset(Path("gone.csv"), settled=dataset.settled)
    assert (recalled.family, recalled.read(dev, "dev")) == (
        dataset.family,
        dataset.read(dev, "dev"),
    )
    odd = write("odd.csv", "text,label\nso,pos\nno,negg\n")
    with pytest.raises(
        LitebertError, match=r"odd\.csv, line 3: the training data has no label"
    ) as caught:
        dataset.read(odd, "dev")
    assert "did you mean neg?" in caught.value.next
    new = write("new.csv", "text\nso, and so\nwell\n")  # needs no labels
    assert dataset.read(new, "test") == [
        TextExample("2", "so, and so"),
        TextExample("3", "well"),
    ]
    with pytest.raises(
        LitebertError, match=r"LB-896: .*new\.csv has no labels"
    ) as error:
        dataset.read(new, "dev")
    assert error.value.next.startswith("use predict ")
    # which the training file does not have
    txt = write("txt.csv", "txt,label\na b,pos\n")
    renamed = ("text=txt",)
    with pytest.raises(
        LitebertError, match=r"LB-851: there is no column text in .*txt\.csv"
    ):
        dataset.read(txt, "test")
    assert (
        len(
            table_dataset(train, columns=renamed, settled=dataset.settled).read(
                txt, "dev"
            )
        )
        == 1
    )
    with pytest.raises(LitebertError, match="LB-867"):
        dataset.read(train, "validation")
    bare = table_dataset(write("bare.csv", "a fine film,pos\na dull film,neg\n" * 9))
    assert bare.settled["columns"] == ["text=1", "label=2", "header=no"]
    assert (
        len(bare.read(write("new.csv", "text,label\nan odd film,pos\n"), "test")) == 2
    )
    head = 'satz,"Note, 1-5"\n'
    typed = ("label=Note, 1-5",)
    named = table_dataset(
        write("named.csv", head + "eine gute Zeit,ja\nkeine gute Zeit,nein\n" * 9),
        columns=typed,
    )
    assert named.read(write("new.csv", "satz\ngut\n"), "test") == [
        TextExample("2", "gut")
    ]
    for columns in ((), typed):
        recalled = table_dataset(
            Path("gone.csv"), columns=columns, settled=named.settled
        )
        assert recalled.read(write("new.csv", head + "gut,nein\n"), "dev") == [
            TextExample("2", "gut", None, 1)
        ]


def test_held_out_rows_do_not_depend_on_order_share_no_text_and_are_the_same_share_of_each_label(
    write: Write,
) -> None:
    # each text twice
    lines = [f"row {n // 2},{'a' if n < 40 else 'b'}\n" for n in range(400)]
    paths = (
        write("one.csv", "text,label\n" + "".join(lines)),
        write("two.csv", "text,label\n" + "".join(lines[::-1])),
    )
    train, dev = (
        table_dataset(paths[0]).read(paths[0], split) for split in ("train", "dev")
    )
    assert {example.first for example in dev} == {
        example.first for example in table_dataset(paths[1]).read(paths[1], "dev")
    }
    assert {example.first for example in dev}.isdisjoint(
        example.first for example in train
    )
    assert Counter(example.label for example in dev) == {0: 4, 1: 36}
    alike = write("alike.csv", "text,label\n" + "the same,a\nthe same,b\n" * 9)
    # then chosen by row number
    assert len(table_dataset(alike).read(alike, "dev")) == 2
    assert all(
        draw_held_out([(k, "")] * 100 + [(k * 2, "")] * 10, 0.1).sum() == 10
        for k in "abcdefgh"
    )
    # the others are left to learn from
    assert draw_held_out([("a", "")] * 3 + [("b", "")] * 2, 0.9).sum() == 2
    with pytest.raises(LitebertError, match="LB-894"):
        table_dataset(
            one := write("row.csv", "text,label\na,x|y\n"), problem="multi-label"
        ).read(one, "train")
    for is_impossible, family in (
        (False, SpanAnswering()),
        (True, ConditionalSpanAnswering()),
    ):
        # contexts are held out with all their questions
        path = write("q.json", questions(is_impossible=is_impossible))
        dataset = table_dataset(path, held_out=0.3)
        assert (dataset.family, dataset.key_measure) == (family, "f1")
        train, dev = (dataset.read(path, split) for split in ("train", "dev"))
        assert dev and {example.context for example in dev}.isdisjoint(
            example.context for example in train
        )


@pytest.mark.parametrize(("num_rows", "num_drawn"), [(5, 2), (7, 4), (100, 50)])
def test_half_of_an_odd_number_of_rows_is_rounded_to_even(
    num_rows: int, num_drawn: int
) -> None:
    rows = [(str(number), "") for number in range(num_rows)]
    assert draw_held_out(rows, 0.5).sum() == num_drawn


def test_the_smallest_group_is_held_out_if_each_has_too_many_rows() -> None:
    is_drawn = draw_held_out([("a", "")] * 12 + [("b", "")] * 10, 0.1)
    assert is_drawn.tolist() == [False] * 12 + [True] * 10


def test_a_text_with_two_labels_counts_for_the_first_by_name() -> None:
    others = [(str(number), "xy"[number % 2]) for number in range(80)]
    texts = [f"text {number}" for number in range(20)]
    labeled_twice = []
    labeled_x = []
    for text in texts:
        labeled_twice += [(text, "y"), (text, "x")]
        labeled_x += [(text, "x"), (text, "x")]
    is_drawn = draw_held_out(others + labeled_twice, 0.2)
    expected = draw_held_out(others + labeled_x, 0.2)
    assert is_drawn.tolist() == expected.tolist()


def test_rows_trained_on_are_not_held_out_wherever_the_file_is(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = write("train.csv", reviews())
    link = Path("link.csv")
    monkeypatch.chdir(train.parent)
    link.symlink_to(train)
    dataset = table_dataset(Path(train.name))
    held_out = dataset.read(train, "dev")
    recalled = table_dataset(Path("elsewhere/train.csv"), settled=dataset.settled)
    copy = write("copy.csv", reviews())
    assert (len(held_out), recalled.read(link, "dev"), recalled.read(copy, "dev")) == (
        4,
        held_out,
        held_out,
    )
    with pytest.raises(LitebertError, match="LB-890"):
        table_dataset(train, columns=("text=label",), settled=dataset.settled).read(
            train, "dev"
        )
    train.write_text(reviews(50))
    for path in (train, link):
        with pytest.raises(LitebertError, match="LB-890"):
            table_dataset(train, settled=dataset.settled).read(path, "dev")


def test_rows_without_a_label_are_omitted_and_counted_on_request(write: Write) -> None:
    cells = [*(f"{n % 4}.5" for n in range(30)), "", "nan"]
    path = write(
        "c.csv", "text,score\n" + "".join(f"row {n},{x}\n" for n, x in enumerate(cells))
    )
    dataset = open_dataset(
        TaskConfig(name="table"), TaskDataConfig(train=str(path), missing_labels="skip")
    )
    assert f"{path.name}: omitted 2 rows without a label" in dataset.notes
    assert len(dataset.read(path, "train")) + len(dataset.read(path, "dev")) == 30


def test_answers_are_written_with_all_probabilities_and_blank_rows_have_none(
    write: Write,
) -> None:
    path = write("r.csv", 'id,text,label\nx,a,pos\ny,b,neg\nz,"  ",neg\n')
    dataset = table_dataset(path, path)
    answers = [Scores((0.25, 0.75)), Scores((0.9, 0.1)), Scores((0.9, 0.1))]
    files = dataset.submission("test", dataset.read(path, "test"), answers)
    assert files == {
        "test.csv": "id,prediction,neg,pos\nx,pos,0.25,0.75\ny,neg,0.9,0.1\nz,,,\n"
    }
    path = write("c.csv", FEWER)
    dataset = table_dataset(path, path)
    answers = [Scores((0.1, 0.2, 0.7)), Scores((0.6, 0.4))]
    written = dataset.submission("test", dataset.read(path, "test"), answers)[
        "test.csv"
    ]
    assert (
        written == "id,prediction,choice 1,choice 2,choice"
        " 3\n2,river,0.1,0.2,0.7\n3,Anna,0.6,0.4,\n"
    )


def test_runs_of_other_columns_or_files_are_not_averaged(write: Write) -> None:
    rows = "text,title,label\n" + "".join(
        f"row {n},line {n},{n % 2}\n" for n in range(20)
    )
    paths = [write("a.csv", rows), write("b.csv", f"{rows}one,more,0\n")]
    a, b = (table_dataset(path, columns=("text=text",)) for path in paths)
    require_same_data({"a": a, "also a": a}, paths[0])
    require_same_data({"a": a, "b": b}, write("new.csv", "text,title,label\na,b,1\n"))
    for runs in (
        {"a": a, "b": b},
        {"a": a, "other": table_dataset(paths[0], columns=("text=title",))},
    ):
        with pytest.raises(LitebertError, match="LB-880"):
            require_same_data(runs, paths[0])
