"""JSON as other programs export it (annotators, data frames, chats, data sets): read
for what it means.
"""

import json

import pytest

from litebert.tasks.tables.dataset import table_dataset
from tests.tables import Write, jsonl, read_pairs

TEXTS: list[str] = []
LABELS: list[str] = []
for film in range(6):
    TEXTS.extend([f"a fine film, number {film}", f"a dull film, number {film}"])
    LABELS.extend(["good", "bad"])
PAIRS = list(zip(TEXTS, LABELS, strict=True))
OBJECTS = [{"text": text, "label": label} for text, label in PAIRS]
LISTS = [[text, label] for text, label in PAIRS]
NUMBERED = list(enumerate(PAIRS))


def filled(form: object) -> list[object]:
    """Return the form for each pair, with TEXT, LABEL, N and {n} replaced in it."""
    rows: list[object] = []
    for number, (text, label) in NUMBERED:
        row = json.dumps(form)
        row = row.replace('"N"', str(number)).replace("{n}", str(number))
        row = row.replace('"TEXT"', json.dumps(text))
        rows.append(json.loads(row.replace('"LABEL"', json.dumps(label))))
    return rows


# ---- one file of JSON ----------------------------------------------------------------

CHATBOT = {"tag": "LABEL", "patterns": ["TEXT"], "responses": ["We are sorry."]}
AMAZON = {
    "reviewerID": "A{n}",
    "helpful": ["N", 3],
    "reviewText": "TEXT",
    "overall": "LABEL",
    "unixReviewTime": "N",
}
PRODIGY = {
    "text": "TEXT",
    "options": [{"id": "good", "text": "Good"}, {"id": "bad", "text": "Bad"}],
    "accept": ["LABEL"],
    "answer": "accept",
}
NESTED = {"id": "N", "data": {"text": "TEXT"}, "label": {"name": "LABEL"}}
NESTED_TWICE = {"review": {"body": {"en": "TEXT"}, "verdict": "LABEL"}}
PANDAS_COLUMNS = {
    "text": {str(number): text for number, (text, _) in NUMBERED},
    "label": {str(number): label for number, (_, label) in NUMBERED},
}
PANDAS_INDEX = {str(number): row for number, row in enumerate(OBJECTS)}
PANDAS_SPLIT = {
    "columns": ["text", "label"],
    "index": list(range(len(PAIRS))),
    "data": LISTS,
}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(LISTS, id="lists"),
        pytest.param({"text": TEXTS, "label": LABELS}, id="a list for each column"),
        pytest.param(PANDAS_COLUMNS, id="pandas, columns"),
        pytest.param(PANDAS_INDEX, id="pandas, index"),
        pytest.param(PANDAS_SPLIT, id="pandas, split"),
        pytest.param({"schema": {"fields": []}, "data": OBJECTS}, id="pandas, table"),
        pytest.param(filled(NESTED), id="nested"),
        pytest.param({"version": "1", "rows": filled(NESTED_TWICE)}, id="nested twice"),
        pytest.param(filled(PRODIGY), id="options of an annotator"),
        pytest.param(
            filled({"text": "TEXT", "label": "FILM", "answer": "LABEL"}),
            id="yes or no of an annotator",
        ),
        pytest.param({"intents": filled(CHATBOT)}, id="intents of a chatbot"),
        pytest.param(filled(AMAZON), id="Amazon"),
    ],
)
def test_json_of_other_programs_is_read(content: object, write: Write) -> None:
    path = write("a.json", json.dumps(content, indent=1))
    assert read_pairs(path) == PAIRS


def test_an_object_of_texts_for_each_label_is_read(write: Write) -> None:
    content = {"good": TEXTS[::2], "bad": TEXTS[1::2]}
    path = write("a.json", json.dumps(content))
    assert sorted(read_pairs(path)) == sorted(PAIRS)


@pytest.mark.parametrize(
    ("content", "num_held_out"),
    [
        pytest.param({"train": OBJECTS, "test": OBJECTS[:4]}, 4, id="objects"),
        pytest.param({"train": LISTS, "val": LISTS[:2]}, 2, id="lists"),
    ],
)
def test_lists_of_one_file_are_its_splits(
    content: object, num_held_out: int, write: Write
) -> None:
    path = write("a.json", json.dumps(content))
    dataset = table_dataset(path)
    assert len(dataset.read(path, "train")) == len(PAIRS)
    assert len(dataset.read(path, "dev")) == num_held_out


# ---- a row of JSON a line ------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a.jsonl"])
def test_lines_of_objects_are_read_under_any_name(name: str, write: Write) -> None:
    assert read_pairs(write(name, jsonl(OBJECTS))) == PAIRS


CHAT = [
    {"role": "system", "content": "Classify."},
    {"role": "user", "content": "TEXT"},
    {"role": "assistant", "content": "LABEL"},
]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(LISTS, id="lists"),
        pytest.param(
            filled({"text": "TEXT", "label": ["LABEL"]}), id="a list of one label"
        ),
        pytest.param(
            filled({"body": "TEXT", "fields": [{"id": 1}], "group": "LABEL"}),
            id="a list of objects is no label",
        ),
        pytest.param(
            filled({"messages": CHAT}), id="what a user and an assistant said"
        ),
        pytest.param(
            filled({"reviewText": "TEXT", "overall": "LABEL", "time": "01 {n}, 2018"}),
            id="dates in words",
        ),
    ],
)
def test_lines_of_other_programs_are_read(rows: list[object], write: Write) -> None:
    assert read_pairs(write("a.jsonl", jsonl(rows))) == PAIRS


# ---- other tasks ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "is_told"),
    [
        pytest.param(
            {"anchor": "TEXT", "positive": "TEXT", "negative": "no"},
            False,
            id="texts",
        ),
        pytest.param(
            {"query": "TEXT", "pos": ["TEXT", "more"], "neg": ["no", "not"]},
            True,
            id="lists",
        ),
    ],
)
def test_triplets_are_pairs_that_belong_together(
    form: object, is_told: bool, write: Write
) -> None:
    path = write("a.jsonl", jsonl(filled(form)))
    dataset = table_dataset(path, path)
    assert dataset.settled["problem"] == "matches"

    example = dataset.read(path, "train")[0]
    assert example.first == TEXTS[0]
    assert example.second == TEXTS[0]
    assert ("the first is read" in "\n".join(dataset.notes)) == is_told


def test_choices_inside_of_a_question_are_read(write: Write) -> None:
    choices = [{"text": f"number {letter}", "label": letter} for letter in "ABC"]
    rows = []
    for number, key in enumerate("ABC" * 4):
        question = {"stem": f"Which one, {number}?", "choices": choices}
        rows.append({"question": question, "answerKey": key})
    path = write("a.jsonl", jsonl(rows))
    example = table_dataset(path, path).read(path, "train")[1]
    assert example.question == "Which one, 1?"
    assert example.choices == ("number A", "number B", "number C")
    assert example.label == 1


def test_entities_of_dataturks_include_their_last_character(write: Write) -> None:
    anna = {"start": 0, "end": 3, "text": "Anna"}
    rome = {"start": 10, "end": 13, "text": "Rome"}
    row = {
        "content": "Anna left Rome",
        "annotation": [
            {"label": ["PER"], "points": [anna]},
            {"label": ["LOC"], "points": [rome]},
        ],
    }
    path = write("a.jsonl", jsonl([row] * 4))
    dataset = table_dataset(path, path)
    example = dataset.read(path, "train")[0]
    assert dataset.family.labels(example) == ("B-PER", "O", "B-LOC")
