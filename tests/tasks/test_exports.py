"""Tables as other programs export them: what annotators, data frames and data sets
write is read for what it means.
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.tasks.own.dataset import table_dataset
from litebert.tasks.own.layouts import open_table

Write = Callable[[str, bytes | str], Path]

TEXTS = [f"a {word} film, number {n}" for n in range(6) for word in ("fine", "dull")]
LABELS = ["good", "bad"] * 6
PAIRS = list(zip(TEXTS, LABELS, strict=True))
ROWS = [{"text": text, "label": label} for text, label in PAIRS]


def jsonl(rows: list[object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(path: Path) -> list[tuple[str, str]]:
    dataset = table_dataset(path, path)
    names = dataset.family.head.labels
    return [
        (example.first, names[example.label]) for example in dataset.read(path, "train")
    ]


JSON: dict[str, object] = {
    "lists": [list(pair) for pair in PAIRS],
    "pandas, columns": {
        name: {str(n): row[name] for n, row in enumerate(ROWS)}
        for name in ("text", "label")
    },
    "pandas, split": {
        "columns": ["text", "label"],
        "index": [*range(12)],
        "data": [list(pair) for pair in PAIRS],
    },
    "pandas, index": {str(n): row for n, row in enumerate(ROWS)},
    "pandas, table": {"schema": {"fields": []}, "data": ROWS},
    "lists of columns": {"text": TEXTS, "label": LABELS},
    "nested": [
        {"id": n, "data": {"text": text}, "label": {"name": label}}
        for n, (text, label) in enumerate(PAIRS)
    ],
    "nested twice": {
        "version": "1",
        "rows": [{"review": {"body": {"en": t}, "verdict": v}} for t, v in PAIRS],
    },
    "options": [
        {
            "text": text,
            "options": [{"id": "good", "text": "Good"}, {"id": "bad", "text": "Bad"}],
            "accept": [label],
            "answer": "accept",
        }
        for text, label in PAIRS
    ],
    "yes or no": [
        {"text": text, "label": "FILM", "answer": label} for text, label in PAIRS
    ],
    "intents of a chatbot": {
        "intents": [
            {"tag": label, "patterns": [text], "responses": ["We are sorry."]}
            for text, label in PAIRS
        ]
    },
    "Amazon": [
        {
            "reviewerID": f"A{n}",
            "helpful": [n % 2, n % 3],
            "reviewText": text,
            "overall": label,
            "unixReviewTime": 1393545600 + n,
        }
        for n, (text, label) in enumerate(PAIRS)
    ],
}


@pytest.mark.parametrize("name", JSON)
def test_json_of_other_programs_is_read(name: str, write: Write) -> None:
    assert read(write("a.json", json.dumps(JSON[name], indent=1))) == PAIRS


def test_an_object_of_texts_for_each_label_is_read(write: Write) -> None:
    table = {"good": TEXTS[::2], "bad": TEXTS[1::2]}
    assert sorted(read(write("a.json", json.dumps(table)))) == sorted(PAIRS)


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a.jsonl"])
def test_lines_of_objects_are_read_under_any_name(name: str, write: Write) -> None:
    assert read(write(name, jsonl([*ROWS]))) == PAIRS


def test_lines_of_lists_are_read(write: Write) -> None:
    assert read(write("a.jsonl", jsonl([[*pair] for pair in PAIRS]))) == PAIRS


@pytest.mark.parametrize("codes", [("4", "0"), ("DESC:def", "NUM:date")])
def test_a_code_before_each_text_is_its_label(
    codes: tuple[str, str], write: Write
) -> None:
    lines = [f"{codes[n % 2]} {text}\n" for n, text in enumerate(TEXTS)]
    wanted = [(text, codes[n % 2]) for n, text in enumerate(TEXTS)]
    assert read(write("a.txt", "".join(lines))) == wanted


def test_numbers_before_a_few_texts_are_no_labels(write: Write) -> None:
    prose = "".join(f"{n} The story goes on and on.\n" for n in range(20))
    with pytest.raises(LitebertError, match="LB-304"):
        table_dataset(write("a.txt", prose))


def test_columns_of_marks_are_labels(write: Write) -> None:
    lines = [f"{text},{n % 2},0,{n % 3 % 2}" for n, text in enumerate(TEXTS)]
    quoted = [line.replace("film, number", "film number") for line in lines]
    path = write("a.csv", "comment,toxic,rude,threat\n" + "\n".join(quoted))
    dataset = table_dataset(path)
    assert dataset.settled["problem"] == "multi-label"
    assert dataset.family.head.labels == ("toxic", "rude", "threat")


def test_labels_that_cells_join_are_several_labels_and_no_second_text(
    write: Write,
) -> None:
    genres = ["Sci Fi", "Drama", "Crime", "War", "Film Noir", "Comedy"]
    groups = [*combinations(genres, 3), *combinations(genres, 2)]
    joined = ["; ".join(group) for group in groups]
    rows = [f"the plot of film {n},{cell}" for n, cell in enumerate(joined)]
    dataset = table_dataset(write("a.csv", "plot,Genres\n" + "\n".join(rows)))
    assert dataset.settled["problem"] == "multi-label"
    assert set(dataset.family.head.labels) == {*genres}


def test_what_a_user_and_an_assistant_said_are_a_text_and_its_label(
    write: Write,
) -> None:
    rows: list[object] = []
    for text, label in PAIRS:
        said = {"system": "Classify.", "user": text, "assistant": label}
        messages = [{"role": role, "content": said[role]} for role in said]
        rows.append({"messages": messages})
    assert read(write("a.jsonl", jsonl(rows))) == PAIRS


def test_comments_above_a_table_are_passed_over(write: Write) -> None:
    rows = [f'"{text}",{label}' for text, label in PAIRS]
    head = "# exported in May, by Ann\n# 12 rows\ntext,label\n"
    assert read(write("a.csv", head + "\n".join(rows))) == PAIRS


def test_lists_of_objects_are_no_labels(write: Write) -> None:
    fields = [{"id": 1, "value": None}]
    rows = [{"body": text, "fields": fields, "group": label} for text, label in PAIRS]
    assert read(write("a.jsonl", jsonl([*rows]))) == PAIRS


def test_a_list_with_one_label_in_each_row_is_one_label(write: Write) -> None:
    rows = [{"text": text, "label": [label]} for text, label in PAIRS]
    assert read(write("a.jsonl", jsonl(rows))) == PAIRS


def test_what_is_about_another_column_is_no_label(write: Write) -> None:
    rows = [f"{label};0.{n}7;{text}" for n, (text, label) in enumerate(PAIRS)]
    head = "sentiment_x;sentiment_x_confidence;text\n"
    assert read(write("a.csv", head + "\n".join(rows))) == PAIRS


def test_several_labels_between_tabs_are_no_decimal_numbers(write: Write) -> None:
    rows = [
        f"{text}\t{('27', '2,3', '0', '14')[n % 4]}" for n, text in enumerate(TEXTS)
    ]
    path = write("a.tsv", "text\tlabels\n" + "\n".join(rows) + "\n")
    dataset = table_dataset(path, problem="multi-label")
    assert dataset.family.head.labels == ("0", "2", "3", "14", "27")
    halves = [
        f"{text}\t{('1', '2', '3', '2,5')[n % 4]}" for n, text in enumerate(TEXTS)
    ]
    path = write("b.tsv", "text\tnote\n" + "\n".join(halves) + "\n")
    assert (
        table_dataset(path, columns=("label=note",)).settled["problem"] == "regression"
    )


def test_a_date_is_no_other_half_of_a_pair(write: Write) -> None:
    date = "Mon Apr 06 22:19:45 PDT 2009"
    rows = [f"{label};{date};{text}" for text, label in PAIRS]
    path = write("a.csv", "\n".join(rows))
    assert not any("warning" in note for note in table_dataset(path).notes)


def test_entities_of_dataturks_include_their_last_character(write: Write) -> None:
    row = {
        "content": "Anna left Rome",
        "annotation": [
            {"label": ["PER"], "points": [{"start": 0, "end": 3, "text": "Anna"}]},
            {"label": ["LOC"], "points": [{"start": 10, "end": 13, "text": "Rome"}]},
        ],
    }
    path = write("a.jsonl", jsonl([row] * 4))
    dataset = table_dataset(path, path)
    example = dataset.read(path, "train")[0]
    assert dataset.family.labels(example) == ("B-PER", "O", "B-LOC")


# ---- what survey tools, trackers and data sets export ------------------------------


def csv_of(*rows: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def numbered(*cells: object) -> list[list[object]]:
    """Return a row of cells for each text and label, which stand for 0 and 1."""
    rows = list[list[object]]()
    for number, pair in enumerate(PAIRS):
        row = list[object]()
        for cell in cells:
            row.append(
                pair[cell] if isinstance(cell, int) else f"{cell}".format(number)
            )
        rows.append(row)
    return rows


DAY = "1/{0}1/2024 14:00:11"
EXPORTS = {
    "Qualtrics": csv_of(
        ["StartDate", "Status", "Q1", "Q2"],
        ["Start Date", "Response Type", "What did you\nthink of it?", "Again?"],
        [
            '{"ImportId":"a"}',
            '{"ImportId":"b"}',
            '{"ImportId":"c"}',
            '{"ImportId":"d"}',
        ],
        *numbered(DAY, "IP Address", 0, 1),
    ),
    "SurveyMonkey": csv_of(
        ["Respondent ID", "How was it?", "What could we do better?"],
        ["", "Response", "Open-Ended Response"],
        *numbered("114{0}", 1, 0),
    ),
    "Google Forms": csv_of(
        ["Timestamp", "Email Address", "How was it?", "Overall, would you come back?"],
        *numbered(DAY, "ann@example.org", 0, 1),
    ),
    "Jira: two columns of one name": csv_of(
        ["Description", "Priority", "Comment", "Comment"],
        *numbered(0, 1, "", ""),
    ),
    "names with accents": csv_of(
        ["Avis du client", "Note", "Catégorie"], *numbered(0, "{0},5", 1)
    ),
    "no header, and a date": csv_of(
        *numbered(1, "14678{0}", "Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", 0)
    ),
    "dates in words": jsonl(
        [
            {"reviewText": text, "overall": label, "reviewTime": f"01 {n + 1}, 2018"}
            for n, (text, label) in enumerate(PAIRS)
        ]
    ),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_of_surveys_trackers_and_shops_are_read(
    name: str, write: Write
) -> None:
    kind = "jsonl" if EXPORTS[name].startswith("{") else "csv"
    path = write(f"a.{kind}", EXPORTS[name])
    assert read(path) == PAIRS
    assert not any("warning" in note for note in table_dataset(path).notes)


@pytest.mark.parametrize("name", ["Ticket ID", "phrase_id", "CommentId", "user id"])
def test_a_column_of_other_identifiers_in_each_row_has_the_ids(
    name: str, write: Write
) -> None:
    people = [name == "user id" and n > 2 for n in range(6)]  # one that comes again
    ids = ["T-3" if is_same else f"T-{n}" for n, is_same in enumerate(people)]
    rows = [f"{id_},so it was {id_},{'ab'[n % 2]}" for n, id_ in enumerate(ids)]
    path = write("a.csv", f"{name},Message,label\n" + "\n".join(rows))
    read_ids = [example.id for example in table_dataset(path).read(path, "train")]
    if name == "user id":
        assert set(read_ids) <= set("234567")
    else:
        assert set(read_ids) <= set(ids)


def test_columns_of_one_name_are_numbered(write: Write) -> None:
    path = write(
        "a.csv", "text,label,note,note\n" + "so good,1,x,y\nso bad,0,x,y\n" * 3
    )
    assert open_table(path).columns == ("text", "label", "note", "note 2")


def test_the_second_column_that_could_be_the_label_is_told(write: Write) -> None:
    head = (
        "pair_ID,sentence_A,sentence_B,entailment_label,relatedness_score,SemEval_set"
    )
    rows = [
        f"{n},a man runs {n},he moves {n},{'yn'[n % 2]},{n % 5}.5,{split}"
        for n, split in enumerate(["TRAIN", "TRIAL", "TEST"] * 6)
    ]
    dataset = table_dataset(write("a.csv", "\n".join([head, *rows])))
    assert dataset.settled["problem"] == "regression"
    notes = "\n".join(dataset.notes)
    assert "--column label=entailment_label" in notes
    assert "rows by column SemEval_set: train 6, dev 6, test 6" in notes


TRIPLETS = {
    "texts": [
        {"anchor": text, "positive": f"{text}!", "negative": "no"} for text in TEXTS
    ],
    "lists": [
        {"query": text, "pos": [f"{text}!", "more"], "neg": ["no", "not"]}
        for text in TEXTS
    ],
}


@pytest.mark.parametrize("name", TRIPLETS)
def test_triplets_are_pairs_that_belong_together(name: str, write: Write) -> None:
    rows: list[object] = [*TRIPLETS[name]]
    path = write("a.jsonl", jsonl(rows))
    dataset = table_dataset(path, path)
    first = dataset.read(path, "train")[0]
    assert dataset.settled["problem"] == "matches"
    assert (first.first, first.second) == (TEXTS[0], f"{TEXTS[0]}!")
    says_first = any("the first is read" in note for note in dataset.notes)
    assert says_first == (name == "lists")


def test_lines_that_are_not_divided_are_told_how(write: Write) -> None:
    rows = [f"{text.replace(',', '')}^{label}" for text, label in PAIRS]
    with pytest.raises(LitebertError, match=r"LB-861(.|\n)*tabs or bars"):
        table_dataset(write("a.csv", "\n".join(rows)))


SPLITS = {
    "objects": {"train": ROWS, "test": ROWS[:4]},
    "lists": {"train": [[*pair] for pair in PAIRS], "val": [[*PAIRS[0]], [*PAIRS[1]]]},
}


@pytest.mark.parametrize("name", SPLITS)
def test_lists_of_one_file_are_its_splits(name: str, write: Write) -> None:
    path = write("a.json", json.dumps(SPLITS[name]))
    dataset = table_dataset(path)
    assert len(dataset.read(path, "train")) == len(PAIRS)
    assert len(dataset.read(path, "dev")) == len([*SPLITS[name].values()][1])


def test_choices_inside_of_a_question_are_read(write: Write) -> None:
    choices = [{"text": f"number {letter}", "label": letter} for letter in "ABC"]
    rows: list[object] = [
        {"question": {"stem": f"Which one, {n}?", "choices": choices}, "answerKey": key}
        for n, key in enumerate("ABC" * 4)
    ]
    path = write("a.jsonl", jsonl(rows))
    dataset = table_dataset(path, path)
    first = dataset.read(path, "train")[0]
    assert (first.question, first.choices[0]) == ("Which one, 0?", "number A")


def test_tags_beside_a_sentence_are_those_of_its_words(write: Write) -> None:
    rows = [f"{n},Anna left Rome,B-PER O B-LOC" for n in range(12)]
    path = write("a.csv", "id,sentence,tags\n" + "\n".join(rows))
    dataset = table_dataset(path, path)
    example = dataset.read(path, "train")[0]
    assert dataset.family.labels(example) == ("B-PER", "O", "B-LOC")
    assert example.words == ("Anna", "left", "Rome")
