"""Tables as surveys, trackers, shops and annotators export them: read for what they
mean.
"""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.layouts import open_table
from tests.tables import Write, csv_text, read_pairs

Cells = Sequence[object]

PAIRS: list[tuple[str, str]] = []
for film in range(6):
    PAIRS.append((f"a fine film, number {film}", "good"))
    PAIRS.append((f"a dull film, number {film}", "bad"))
TEXTS = [text for text, _ in PAIRS]


def filled(*cells: str) -> list[list[str]]:
    """Return the cells for each pair, with TEXT, LABEL and {n} replaced in them."""
    rows = list[list[str]]()
    for number, (text, label) in enumerate(PAIRS):
        values = {"TEXT": text, "LABEL": label}
        row = [values.get(cell, cell.replace("{n}", str(number))) for cell in cells]
        rows.append(row)
    return rows


# ---- texts with a label, and much besides --------------------------------------------

DAY = "1/{n}1/2024 14:00:11"
DAY_OF_TWITTER = "Mon Apr 06 22:19:45 PDT 2009"
QUALTRICS = [
    ["StartDate", "Status", "Q1", "Q2"],
    ["Start Date", "Response Type", "What did you\nthink of it?", "Again?"],
    ['{"ImportId":"a"}', '{"ImportId":"b"}', '{"ImportId":"c"}', '{"ImportId":"d"}'],
]
SURVEY_MONKEY = [
    ["Respondent ID", "How was it?", "What could we do better?"],
    ["", "Response", "Open-Ended Response"],
]
GOOGLE_FORMS = [
    "Timestamp",
    "Email Address",
    "How was it?",
    "Overall, did you like it?",
]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            [*QUALTRICS, *filled(DAY, "IP Address", "TEXT", "LABEL")], id="Qualtrics"
        ),
        pytest.param(
            [*SURVEY_MONKEY, *filled("114{n}", "LABEL", "TEXT")], id="SurveyMonkey"
        ),
        pytest.param(
            [GOOGLE_FORMS, *filled(DAY, "ann@example.org", "TEXT", "LABEL")],
            id="Google Forms",
        ),
        pytest.param(
            [
                ["Description", "Priority", "Comment", "Comment"],
                *filled("TEXT", "LABEL", "", ""),
            ],
            id="Jira, two columns of one name",
        ),
        pytest.param(
            [
                ["Avis du client", "Note", "Catégorie"],
                *filled("TEXT", "{n},5", "LABEL"),
            ],
            id="names with accents",
        ),
        pytest.param(
            filled("LABEL", "14678{n}", DAY_OF_TWITTER, "NO_QUERY", "TEXT"),
            id="no header, and a date",
        ),
        pytest.param(
            filled("LABEL", DAY_OF_TWITTER, "TEXT"), id="a date beside the text"
        ),
        pytest.param(
            [
                ["sentiment_x", "sentiment_x_confidence", "text"],
                *filled("LABEL", "0.{n}7", "TEXT"),
            ],
            id="what is about another column is no label",
        ),
    ],
)
def test_exports_are_read_without_a_warning(rows: list[Cells], write: Write) -> None:
    path = write("a.csv", csv_text(rows))
    assert read_pairs(path) == PAIRS
    assert "warning" not in "\n".join(table_dataset(path).notes)


def test_comments_above_a_table_are_passed_over(write: Write) -> None:
    comments = "# exported in May, by Ann\n# 12 rows\n"
    table = csv_text([["text", "label"], *PAIRS])
    assert read_pairs(write("a.csv", comments + table)) == PAIRS


# ---- lines without columns -----------------------------------------------------------


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param(("4", "0"), id="numbers"),
        pytest.param(("DESC:def", "NUM:date"), id="words"),
    ],
)
def test_a_code_before_each_text_is_its_label(
    codes: tuple[str, str], write: Write
) -> None:
    expected = []
    for number, text in enumerate(TEXTS):
        expected.append((text, codes[number % 2]))
    lines = [f"{code} {text}\n" for text, code in expected]
    assert read_pairs(write("a.txt", "".join(lines))) == expected


def test_numbers_before_a_few_texts_are_no_labels(write: Write) -> None:
    lines = [f"{number} The story goes on and on.\n" for number in range(20)]
    with pytest.raises(LitebertError, match="LB-304"):
        table_dataset(write("a.txt", "".join(lines)))


def test_lines_that_are_not_divided_are_told_how(write: Write) -> None:
    lines = [f"{text.replace(',', '')}^{label}" for text, label in PAIRS]
    with pytest.raises(LitebertError, match=r"LB-861(.|\n)*tabs or bars"):
        table_dataset(write("a.csv", "\n".join(lines)))


# ---- several labels ------------------------------------------------------------------


def test_columns_of_marks_are_labels(write: Write) -> None:
    rows: list[Cells] = [("comment", "toxic", "rude", "threat")]
    for number, text in enumerate(TEXTS):
        rows.append((text, number % 2, 0, number % 3 % 2))
    dataset = table_dataset(write("a.csv", csv_text(rows)))
    assert dataset.settled["problem"] == "multi-label"
    assert dataset.family.head.labels == ("toxic", "rude", "threat")


def test_labels_that_cells_join_are_several_labels_and_no_second_text(
    write: Write,
) -> None:
    genres = ["Sci Fi", "Drama", "Crime", "War", "Film Noir", "Comedy"]
    rows: list[Cells] = [("plot", "Genres")]
    for group in [*combinations(genres, 3), *combinations(genres, 2)]:
        rows.append((f"the plot of film {len(rows)}", "; ".join(group)))
    dataset = table_dataset(write("a.csv", csv_text(rows)))
    assert dataset.settled["problem"] == "multi-label"
    assert set(dataset.family.head.labels) == set(genres)


def table_of_numbers(column: str, numbers: Sequence[str]) -> str:
    """Return texts between tabs, whose second column has these cells in turn."""
    lines = [f"text\t{column}"]
    for number, text in enumerate(TEXTS):
        lines.append(f"{text}\t{numbers[number % len(numbers)]}")
    return "\n".join(lines) + "\n"


def test_several_labels_between_tabs_are_no_decimal_numbers(write: Write) -> None:
    path = write("a.tsv", table_of_numbers("labels", ["27", "2,3", "0", "14"]))
    dataset = table_dataset(path, problem="multi-label")
    assert dataset.family.head.labels == ("0", "2", "3", "14", "27")


def test_a_decimal_comma_between_tabs_makes_a_score(write: Write) -> None:
    path = write("a.tsv", table_of_numbers("note", ["1", "2", "3", "2,5"]))
    dataset = table_dataset(path, columns=("label=note",))
    assert dataset.settled["problem"] == "regression"


# ---- columns -------------------------------------------------------------------------


def rows_of_tickets(column: str, ids: Sequence[str]) -> list[Cells]:
    """Return a ticket for each id, which stands in the column of this name."""
    rows: list[Cells] = [(column, "Message", "label")]
    for number, id_ in enumerate(ids):
        rows.append((id_, f"so it was in {id_}", "ab"[number % 2]))
    return rows


def read_ids(path: Path) -> set[str]:
    dataset = table_dataset(path, path)
    return {example.id for example in dataset.read(path, "train")}


@pytest.mark.parametrize("column", ["Ticket ID", "phrase_id", "CommentId"])
def test_a_column_with_another_identifier_in_each_row_has_the_ids(
    column: str, write: Write
) -> None:
    ids = [f"T-{number}" for number in range(6)]
    path = write("a.csv", csv_text(rows_of_tickets(column, ids)))
    assert read_ids(path) == set(ids)


def test_a_column_whose_identifiers_come_again_has_no_ids(write: Write) -> None:
    ids = ["T-0", "T-1", "T-2", "T-3", "T-3", "T-3"]
    path = write("a.csv", csv_text(rows_of_tickets("user id", ids)))
    lines = {"2", "3", "4", "5", "6", "7"}
    assert read_ids(path) == lines


def test_columns_of_one_name_are_numbered(write: Write) -> None:
    table = "text,label,note,note\n" + "so good,1,x,y\nso bad,0,x,y\n" * 3
    path = write("a.csv", table)
    assert open_table(path).columns == ("text", "label", "note", "note 2")


SICK = (
    "pair_ID",
    "sentence_A",
    "sentence_B",
    "entailment_label",
    "relatedness_score",
    "SemEval_set",
)


@pytest.fixture
def notes_on_sick(write: Write) -> str:
    """Return what is said of a table in the columns of SICK."""
    rows: list[Cells] = [SICK]
    for number, split in enumerate(["TRAIN", "TRIAL", "TEST"] * 6):
        label = "yn"[number % 2]
        pair = (f"a man runs {number}", f"he moves {number}")
        rows.append((number, *pair, label, f"{number % 5}.5", split))
    dataset = table_dataset(write("a.csv", csv_text(rows)))
    assert dataset.settled["problem"] == "regression"
    return "\n".join(dataset.notes)


def test_the_second_column_that_could_be_the_label_is_told(notes_on_sick: str) -> None:
    assert "--column label=entailment_label" in notes_on_sick


def test_a_column_that_names_the_splits_divides_the_rows(notes_on_sick: str) -> None:
    assert "rows by column SemEval_set: train 6, dev 6, test 6" in notes_on_sick


def test_tags_beside_a_sentence_are_those_of_its_words(write: Write) -> None:
    rows = [("id", "sentence", "tags")]
    for number in range(12):
        rows.append((str(number), "Anna left Rome", "B-PER O B-LOC"))
    path = write("a.csv", csv_text(rows))
    dataset = table_dataset(path, path)
    example = dataset.read(path, "train")[0]
    assert example.words == ("Anna", "left", "Rome")
    assert dataset.family.labels(example) == ("B-PER", "O", "B-LOC")
