"""Labels and tags that files give as numbers take names."""

import pytest

from litebert.errors import LitebertError
from litebert.metrics import tagging_measures
from litebert.tasks.check import check_files
from litebert.tasks.tables.dataset import table_dataset
from tests.tables import Write, csv_text, jsonl

# ---- tags ----------------------------------------------------------------------------

TAGS = ("O", "B-PER", "I-PER", "B-LOC")
SENTENCES = [
    {"tokens": ["Anna", "Brown", "left", "Rome"], "ner_tags": [1, 2, 0, 3]},
    {"tokens": ["The", "bridge", "stands"], "ner_tags": [0, 0, 0]},
    {"tokens": ["Bert", "sleeps"], "ner_tags": [1, 0]},
]
NUMBERED_TAGS = jsonl(SENTENCES * 3)


def test_numbers_of_tags_take_the_names(write: Write) -> None:
    path = write("a.jsonl", NUMBERED_TAGS)
    dataset = table_dataset(path, path, labels=TAGS)
    assert dataset.family.head.labels == TAGS

    first = dataset.read(path, "train")[0]
    assert dataset.family.labels(first) == ("B-PER", "I-PER", "O", "B-LOC")


def test_named_tags_with_prefixes_are_measured_as_entities(write: Write) -> None:
    path = write("a.jsonl", NUMBERED_TAGS)
    assert table_dataset(path, labels=TAGS).key_measure == "f1"


def test_a_run_reads_other_files_by_the_names_of_its_tags(write: Write) -> None:
    path = write("a.jsonl", NUMBERED_TAGS)
    run = table_dataset(path, path, labels=TAGS).settled
    named = write("b.jsonl", jsonl([{"tokens": ["Rome"], "ner_tags": ["B-LOC"]}]))
    (example,) = table_dataset(path, settled=run).read(named, "dev")
    assert example.tags == (TAGS.index("B-LOC"),)


def test_a_run_holds_out_the_rows_of_a_numbered_file_again(write: Write) -> None:
    path = write("a.jsonl", NUMBERED_TAGS)
    dataset = table_dataset(path, labels=TAGS)
    held_out = dataset.read(path, "dev")
    assert held_out
    assert table_dataset(path, settled=dataset.settled).read(path, "dev") == held_out


def test_a_note_on_tags_without_names_tells_the_option(write: Write) -> None:
    notes = table_dataset(write("a.jsonl", NUMBERED_TAGS)).notes
    assert "--label-names" in "\n".join(notes)


def test_tags_without_prefixes_are_measured_as_entities(write: Write) -> None:
    lines = "Anna PER\nBrown PER\nleft O\nRome LOC\n\nIt O\nrained O\n\n"
    assert table_dataset(write("a.conll", lines * 4)).key_measure == "f1"


def test_of_two_entities_without_prefixes_one_is_recognized() -> None:
    expected = [["PER", "PER", "O", "LOC"]]
    answers = [["PER", "O", "O", "LOC"]]
    measures = tagging_measures(expected, answers, ["O", "PER", "LOC"])
    # The person has two words, the answer one: only the place is right.
    assert measures["f1"] == 0.5


@pytest.mark.parametrize(("noun", "verb"), [("NOUN", "VERB"), ("N", "O")])
def test_parts_of_speech_are_not_measured_as_entities(
    noun: str, verb: str, write: Write
) -> None:
    lines = f"Anna {noun}\nleft {verb}\n\nIt {noun}\nrained {verb}\n\n"
    assert table_dataset(write("a.conll", lines * 4)).key_measure == "accuracy"


# ---- labels of texts -----------------------------------------------------------------

NAMES = ("bad", "fair", "good")


def numbered_table(
    num_rows: int, num_labels: int, first: int = 0, column: str = "label"
) -> str:
    """Return a table whose labels count from `first` on, again and again."""
    rows: list[tuple[object, object]] = [("text", column)]
    for number in range(num_rows):
        rows.append((f"row number {number}", first + number % num_labels))
    return csv_text(rows)


@pytest.mark.parametrize("first", [0, 1])
def test_labels_take_names_from_zero_or_one_on(first: int, write: Write) -> None:
    path = write("a.csv", numbered_table(30, 3, first))
    dataset = table_dataset(path, path, labels=NAMES)
    examples = dataset.read(path, "train")
    assert [example.label for example in examples] == [0, 1, 2] * 10
    assert dataset.settled["first_number"] == first


@pytest.mark.parametrize("first", [0, 1])
def test_the_check_of_files_counts_labels_by_their_names(
    first: int, write: Write
) -> None:
    path = write("a.csv", numbered_table(30, 3, first))
    (split,) = check_files(path, labels=NAMES).splits
    assert split.labels == {"bad": 10, "fair": 10, "good": 10}


def test_many_numbers_are_scores_unless_they_have_names(write: Write) -> None:
    path = write("a.csv", numbered_table(100, 25, column="score"))
    assert table_dataset(path).settled["problem"] == "regression"

    names = tuple(f"label {number}" for number in range(25))
    assert table_dataset(path, labels=names).settled["problem"] == "classification"


def test_numbers_beyond_the_names_are_refused(write: Write) -> None:
    path = write("a.csv", "text,label\n" + "row,0\nrow,5\n" * 9)
    with pytest.raises(LitebertError, match="LB-852"):
        table_dataset(path, labels=("bad", "good"))


def test_a_number_is_no_label_where_the_training_file_has_words(write: Write) -> None:
    path = write("a.csv", "text,label\n" + "row one,bad\nrow two,good\n" * 9)
    dataset = table_dataset(path, path, labels=("bad", "good"))
    numbered = write("b.csv", "text,label\nrow,1\n")
    with pytest.raises(LitebertError, match="LB-858"):
        dataset.read(numbered, "dev")
