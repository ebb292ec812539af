"""Labels and tags that files give as numbers take names."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.metrics import tagging_measures
from litebert.tasks.check import check_files
from litebert.tasks.own.dataset import table_dataset

Write = Callable[[str, bytes | str], Path]

TAGS = ("O", "B-PER", "I-PER", "B-LOC")
SENTENCES = [
    {"tokens": ["Anna", "Brown", "left", "Rome"], "ner_tags": [1, 2, 0, 3]},
    {"tokens": ["The", "bridge", "stands"], "ner_tags": [0, 0, 0]},
    {"tokens": ["Bert", "sleeps"], "ner_tags": [1, 0]},
] * 3


def jsonl(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_tags_take_names_and_are_measured_as_entities(write: Write) -> None:
    path = write("a.jsonl", jsonl(SENTENCES))
    dataset = table_dataset(path, path, labels=TAGS)
    family = dataset.family
    assert (family.head.labels, dataset.key_measure) == (TAGS, "f1")
    read = dataset.read(path, "train")
    assert family.labels(read[0]) == ("B-PER", "I-PER", "O", "B-LOC")
    # a run reads other files in the same way, by numbers or by names
    other = write("b.jsonl", jsonl([{"tokens": ["Rome"], "ner_tags": ["B-LOC"]}]))
    again = table_dataset(path, settled=dataset.settled)
    assert again.read(other, "dev")[0].tags == (3,)
    assert again.read(path, "dev") == table_dataset(path, labels=TAGS).read(path, "dev")


def test_tags_without_names_are_told_the_flag(write: Write) -> None:
    path = write("a.jsonl", jsonl(SENTENCES))
    assert any("--label-names" in note for note in table_dataset(path).notes)


@pytest.mark.parametrize("first", [0, 1])
def test_labels_take_names_from_zero_or_one_on(first: int, write: Write) -> None:
    rows = [f"row number {n},{first + n % 3}" for n in range(30)]
    path = write("a.csv", "text,label\n" + "\n".join(rows))
    dataset = table_dataset(path, path, labels=("bad", "fair", "good"))
    assert [example.label for example in dataset.read(path, "train")] == [0, 1, 2] * 10
    assert dataset.settled["first_number"] == first
    report = check_files(path, labels=("bad", "fair", "good"))
    assert report.splits[0].labels == {"bad": 10, "fair": 10, "good": 10}


def test_many_numbers_with_names_are_no_scores(write: Write) -> None:
    rows = [f"row number {n},{n % 25}" for n in range(100)]
    path = write("a.csv", "text,score\n" + "\n".join(rows))
    assert table_dataset(path).settled["problem"] == "regression"
    names = tuple(f"label {n}" for n in range(25))
    assert table_dataset(path, labels=names).settled["problem"] == "classification"


def test_numbers_beyond_the_names_are_refused(write: Write) -> None:
    path = write("a.csv", "text,label\n" + "row,0\nrow,5\n" * 9)
    with pytest.raises(LitebertError, match="LB-852"):
        table_dataset(path, labels=("bad", "good"))


def test_numbers_are_no_names_unless_the_training_file_has_numbers(
    write: Write,
) -> None:
    path = write("a.csv", "text,label\n" + "row one,bad\nrow two,good\n" * 9)
    dataset = table_dataset(path, path, labels=("bad", "good"))
    other = write("b.csv", "text,label\nrow,1\n")
    with pytest.raises(LitebertError, match="LB-858"):
        dataset.read(other, "dev")


def test_tags_without_prefixes_are_measured_as_entities(write: Write) -> None:
    lines = "Anna PER\nBrown PER\nleft O\nRome LOC\n\nIt O\nrained O\n\n"
    assert table_dataset(write("a.conll", lines * 4)).key_measure == "f1"
    wanted = [["PER", "PER", "O", "LOC"]]
    found = [["PER", "O", "O", "LOC"]]
    assert tagging_measures(wanted, found, ["O", "PER", "LOC"])["f1"] == 0.5


def test_parts_of_speech_are_not_measured_as_entities(write: Write) -> None:
    for noun, verb in (("NOUN", "VERB"), ("N", "O")):
        lines = f"Anna {noun}\nleft {verb}\n\nIt {noun}\nrained {verb}\n\n"
        path = write(f"{noun}.conll", lines * 4)
        assert table_dataset(path).key_measure == "accuracy"
