"""Delimited files as people have them: headers, spellings of labels, splits, places of
answers.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.tasks.check import check_files
from litebert.tasks.kinds.spans import locate_answer
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.layouts import open_table
from tests.tables import Write, jsonl


def rows_of(form: str, labels: Iterable[str], number: int = 24) -> str:
    """Write rows with labels in turn; {n} is the number of a row."""
    names = list(labels)
    text = ""
    for n in range(number):
        text += form.format(n=n, label=names[n % len(names)]) + "\n"
    return text


def notes_on(path: Path) -> str:
    return "\n".join(table_dataset(path).notes)


# ---- headers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "form"),
    [
        pytest.param("v1,v2,,,\n", 'spam,"so it is, {n}",,,', id="empty cells"),
        pytest.param("v1,v2,,\n", 'spam,"so it is, {n}"', id="too few cells"),
        pytest.param("label,text\n", 'spam,"so it is, {n}",', id="empty cells below"),
        pytest.param("sep=;\nlabel;text\n", "spam;so it is, {n}", id="sep=;"),
        pytest.param('"sep=,"\nlabel,text\n', '{n},"so it is, {n}"', id="sep=,"),
    ],
)
def test_the_first_row_of_a_file_stands_below_its_heading(
    heading: str, form: str, write: Write
) -> None:
    table = open_table(write("a.csv", heading + rows_of(form, "x")))
    assert table.has_header
    line, row = next(table.rows())
    assert line == 1 + heading.count("\n")
    assert "so it is, 0" in row.values()


# ---- labels and numbers --------------------------------------------------------------


@pytest.mark.parametrize(
    ("spellings", "names"),
    [
        (("0", "1", "0.0", "1.0"), ("0", "1")),
        (("true", "False", "TRUE", "false"), ("false", "true")),
    ],
)
def test_a_label_has_one_spelling(
    spellings: Sequence[str], names: tuple[str, ...], write: Write
) -> None:
    table = "text,label\n" + rows_of("row number {n},{label}", spellings)
    assert table_dataset(write("a.csv", table)).family.head.labels == names


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param(
            "b.jsonl",
            rows_of('{{"text": "row number {n}", "label": {label}}}', ("0.0", "1.0")),
            id="json",
        ),
        pytest.param(
            "b.csv",
            "text,label\n" + rows_of("row number {n},{label}", ("0.0", "1.0")),
            id="csv",
        ),
    ],
)
def test_labels_are_the_same_in_all_kinds_of_file(
    name: str, content: str, write: Write
) -> None:
    form = '{{"text": "row number {n}", "label": {label}}}'
    dataset = table_dataset(write("a.jsonl", rows_of(form, ("0", "1"))))
    examples = dataset.read(write(name, content), "dev")
    assert [example.label for example in examples] == [0, 1] * 12


@pytest.mark.parametrize(
    ("heading", "form"),
    [
        pytest.param('"text","rating"\n', '"text {n}","{label}"', id="quoted"),
        pytest.param("text;rating\n", "text {n};{label}", id="semicolons"),
    ],
)
def test_decimal_commas_are_numbers(heading: str, form: str, write: Write) -> None:
    table = heading + rows_of(form, ("1,5", "3,5", "2,0"))
    dataset = table_dataset(write("a.csv", table))
    assert dataset.settled["problem"] == "regression"


def test_ids_with_commas_stay_as_they_are(write: Write) -> None:
    table = "id;text;label\n" + rows_of("{n},7;text {n};{label}", ("good", "bad"))
    _, row = next(open_table(write("a.csv", table)).rows())
    assert row["id"] == "0,7"


def test_two_labels_between_quotes_are_no_number(write: Write) -> None:
    rows = rows_of('"text {n}","{label}"', ("1", "2", "1,2", "3"))
    path = write("a.csv", '"text","labels"\n' + rows)
    dataset = table_dataset(path, problem="multi-label")
    assert dataset.family.head.labels == ("1", "2", "3")


# ---- a dash for a label --------------------------------------------------------------


@pytest.fixture
def dashes(write: Write) -> Path:
    """Write 24 pairs with a label and 12 with a dash, as SNLI has them."""
    rows = []
    for number, label in enumerate(["entailment", "neutral", "-"] * 12):
        pair = {"sentence1": f"one {number}", "sentence2": f"two {number}"}
        rows.append({"gold_label": label} | pair)
    return write("a.jsonl", jsonl(rows))


def test_a_dash_is_a_doubtful_label(dashes: Path) -> None:
    assert "- may mean that there is no label" in notes_on(dashes)
    (count,) = (
        finding.count
        for finding in check_files(dashes).findings
        if finding.kind == "doubtful label"
    )
    assert count == 12


def test_rows_with_a_dash_are_omitted_on_request(dashes: Path) -> None:
    dataset = table_dataset(dashes, dashes, skips_unlabeled=True)
    assert dataset.family.head.labels == ("entailment", "neutral")
    assert len(dataset.read(dashes, "train")) == 24
    assert "omitted 12 rows" in "\n".join(dataset.notes)


# ---- columns of splits ---------------------------------------------------------------


def table_with_splits(column: str, **sizes: int) -> str:
    """Write texts that are numbered within each split, which the column names."""
    table = f"text,label,{column}\n"
    for split, size in sizes.items():
        table += rows_of(f"{split} {{n}},{{label}},{split}", "ab", size)
    return table


@pytest.mark.parametrize(
    ("train", "test"), [("train", "test"), ("Training", "PublicTest")]
)
def test_a_column_of_splits_divides_the_rows(
    train: str, test: str, write: Write
) -> None:
    path = write("a.csv", table_with_splits("split", **{train: 30, test: 6}))
    dataset = table_dataset(path)
    assert len(dataset.read(path, "train")) == 30
    held_out = [example.first for example in dataset.read(path, "dev")]
    assert held_out == [f"{test} {number}" for number in range(6)]


def test_a_model_that_is_chosen_on_the_test_rows_is_noted(write: Write) -> None:
    notes = notes_on(write("a.csv", table_with_splits("split", train=30, test=6)))
    assert "rows by column split" in notes
    assert "chosen on the test rows" in notes


def test_other_files_need_no_column_of_splits(write: Write) -> None:
    path = write("a.csv", table_with_splits("split", train=30, test=6))
    dataset = table_dataset(path)
    other = write("b.csv", "text,label\nrow,a\n")
    assert len(dataset.read(other, "dev")) == 1


def test_rows_for_development_are_evaluated_on_before_those_for_the_test(
    write: Write,
) -> None:
    table = table_with_splits("set", train=8, validation=2, test=2)
    path = write("a.csv", table)
    examples = table_dataset(path).read(path, "dev")
    texts = [example.first for example in examples]
    assert texts == ["validation 0", "validation 1"]


def test_a_column_of_other_values_is_no_split(write: Write) -> None:
    path = write("a.csv", table_with_splits("set", new=30))
    dataset = table_dataset(path)
    # a tenth is held out, as without such a column
    assert len(dataset.read(path, "train")) == 27


# ---- answers in a context ------------------------------------------------------------

EMOJI = "😀🎉 Room 7 of the hotel costs 40 euros a night, not 40 euros a day."
IN_BYTES = len(EMOJI[:29].encode())


@pytest.mark.parametrize(
    ("context", "answer", "start", "expected"),
    [
        pytest.param("The 40 rooms cost 4 euros.", "4", None, 18, id="a number"),
        pytest.param("The artist sold art.", "art", None, 16, id="a word"),
        pytest.param("In 1990 Ann met An.", "An", None, 16, id="a name"),
        pytest.param("東京は大きい。", "大き", None, 3, id="no spaces"),
        pytest.param(EMOJI, "40 euros", 31, 29, id="units of UTF-16"),
        pytest.param(EMOJI, "40 euros", IN_BYTES, 29, id="bytes"),
        pytest.param(EMOJI, "40 euros", 54, 51, id="the nearest"),
        pytest.param("one two", "two", -1, 4, id="an unknown start"),
    ],
)
def test_answers_are_located_by_their_text(
    context: str, answer: str, start: float | None, expected: int
) -> None:
    assert locate_answer(context, answer, start).start == expected


@pytest.mark.parametrize(
    ("start", "note"),
    [
        ({}, "4 answers without a start in several places"),
        ({"answer_start": 1}, "4 answers not where the start says"),
    ],
    ids=["no start", "a wrong start"],
)
def test_doubtful_places_of_answers_are_counted(
    start: dict[str, int], note: str, write: Write
) -> None:
    rows = []
    for number in range(10, 14):
        context = f"{number} is one of two, {number}."
        row = {"question": "?", "context": context, "answer": str(number)}
        rows.append(row | start)
    assert note in notes_on(write("a.jsonl", jsonl(rows)))


# ---- what is no table ----------------------------------------------------------------


def test_text_that_is_no_table_is_refused_with_the_layouts(write: Write) -> None:
    path = write("a.txt", "A line of text.\n\nAnother one, longer.\n")
    with pytest.raises(LitebertError, match=r"LB-304(.|\n)*\.conll") as raised:
        open_table(path)
    assert "litebert pretrain" in str(raised.value.next)


def test_another_kind_of_file_is_to_be_converted(write: Write) -> None:
    path = write("a.yml", "nlu:\n- intent: greet\n")
    with pytest.raises(LitebertError, match=r"LB-304(.|\n)*convert it to \.csv"):
        open_table(path)
