"""Entities by character, as annotators export them, become tags of words."""

import json
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.tasks.tables.dataset import table_dataset
from tests.tables import Write, csv_text, jsonl

TEXT = "Anna left New York, Ms. Brown"
PLACES = [(0, 4, "PER"), (10, 18, "LOC"), (24, 29, "PER")]
WORDS = ("Anna", "left", "New", "York", ",", "Ms", ".", "Brown")
TAGS = ("B-PER", "O", "B-LOC", "I-LOC", "O", "O", "O", "B-PER")

# ---- what annotators export ----------------------------------------------------------

OBJECTS = [
    {"start": start, "end": stop, "label": label} for start, stop, label in PLACES
]
OFFSETS = [
    {"id": 1, "start_offset": start, "end_offset": stop, "label": label}
    for start, stop, label in PLACES
]
REGIONS = [
    {"start": start, "end": stop, "labels": [label]} for start, stop, label in PLACES
]
LABEL_STUDIO = {
    "id": 1,
    "data": {"text": TEXT},
    "annotations": [{"id": 2, "result": [{"value": region} for region in REGIONS]}],
}
PRODIGY = {
    "text": TEXT,
    "spans": OBJECTS,
    "tokens": [{"text": "Anna"}],
    "answer": "accept",
}
SPACY = [TEXT, {"entities": PLACES}]
EXPORTS = {
    "doccano": ("a.jsonl", jsonl([{"id": 7, "text": TEXT, "label": PLACES}])),
    "doccano, relations": ("a.jsonl", jsonl([{"text": TEXT, "entities": OFFSETS}])),
    "objects": ("a.jsonl", jsonl([{"text": TEXT, "entities": OBJECTS}])),
    "prodigy": ("a.jsonl", jsonl([PRODIGY])),
    "spaCy": ("a.json", json.dumps([SPACY])),
    "spaCy, a line each": ("a.jsonl", jsonl([SPACY])),
    "Label Studio": ("a.json", json.dumps([LABEL_STUDIO])),
    "Label Studio, short": ("a.json", json.dumps([{"text": TEXT, "label": REGIONS}])),
    "other names": ("a.jsonl", jsonl([{"satz": TEXT, "marken": OBJECTS}])),
    "a table": ("a.csv", csv_text([("text", "spans"), (TEXT, PLACES)])),
}


@pytest.mark.parametrize("export", EXPORTS)
def test_entities_by_character_become_tags_of_words(export: str, write: Write) -> None:
    path = write(*EXPORTS[export])
    dataset = table_dataset(path, path)
    (example,) = dataset.read(path, "train")
    assert example.words == WORDS
    assert dataset.family.labels(example) == TAGS


@pytest.mark.parametrize("export", EXPORTS)
def test_texts_are_divided_without_their_entities(export: str, write: Write) -> None:
    path = write(*EXPORTS[export])
    (example,) = table_dataset(path, path).read(path, "test")
    assert example.words == WORDS


@pytest.mark.parametrize(
    ("spans", "tag"),
    [
        ([(0, 4, "GPE(x)")], "B-GPE(x)"),
        ([{"start": 0, "end": 4, "label": "it's"}], "B-it's"),
    ],
)
def test_entities_in_a_cell_may_be_written_as_python_writes_them(
    spans: list[object], tag: str, write: Write
) -> None:
    path = write("a.csv", csv_text([("text", "spans"), (TEXT, spans)]))
    assert table_dataset(path, path).family.head.labels[0] == tag


def test_texts_with_entities_of_brat_are_read(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(TEXT, "utf-8")
    entities = (
        "T0\tPER 0 4\tAnna\n"
        "T1\tLOC 10 13;14 18\tNew York\n"  # of two parts
        "T2\tPER 24 29\tBrown\n"
        "R1\tLives Arg1:T0 Arg2:T1\n"
    )
    (tmp_path / "one.ann").write_text(entities, "utf-8")
    (tmp_path / "two.txt").write_text("Nobody left", "utf-8")
    (tmp_path / "two.ann").touch()

    dataset = table_dataset(tmp_path, tmp_path)
    one, two = dataset.read(tmp_path, "train")
    assert dataset.family.labels(one) == TAGS
    assert dataset.family.labels(two) == ("O", "O")
    assert "2 texts with entities of brat" in dataset.notes[0]


def test_words_with_tags_evaluate_what_entities_by_character_trained(
    write: Write,
) -> None:
    trained = write("a.jsonl", jsonl([{"text": TEXT, "label": PLACES}] * 2))
    dataset = table_dataset(trained, trained)
    words = write("b.conll", "Ada B-PER\nleft O\n\n")
    (example,) = dataset.read(words, "dev")
    assert dataset.family.labels(example) == ("B-PER", "O")


# ---- entities that are no words ------------------------------------------------------

PARTS_OF_WORDS = {
    "text": "Annas hat",
    "entities": [[0, 4, "PER"], [0, 2, "X"], [6, 9, "HAT"]],
}


def test_entities_that_are_no_words_are_counted(write: Write) -> None:
    path = write("a.jsonl", jsonl([PARTS_OF_WORDS]))
    notes = "\n".join(table_dataset(path, path).notes)
    assert "1 end inside of one" in notes
    assert "left out: 1 without a word" in notes


def test_entities_beyond_their_text_are_refused(write: Write) -> None:
    beyond = {"text": "a", "entities": [[0, 9, "PER"]]}
    path = write("a.jsonl", jsonl([PARTS_OF_WORDS, beyond]))
    with pytest.raises(LitebertError, match=r"LB-868: .*line 2"):
        table_dataset(path, path).read(path, "train")


def test_rows_that_an_annotator_rejected_are_left_out(write: Write) -> None:
    rejected = {"text": "Annas hat", "spans": [], "answer": "reject"}
    path = write("a.jsonl", jsonl([PARTS_OF_WORDS, rejected]))
    assert len(table_dataset(path, path).read(path, "train")) == 1
