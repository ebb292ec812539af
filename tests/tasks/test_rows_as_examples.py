"""Rows of a table become examples of every kind of problem; rows that cannot be learned
are refused; answers are written beside the ids of their rows.
"""

import json
from typing import Any

import pytest

from litebert.config import TaskConfig, TaskDataConfig
from litebert.errors import LitebertError
from litebert.tasks.kinds.choice import ChoiceExample
from litebert.tasks.kinds.tagging import TagExample
from litebert.tasks.kinds.text import Scores, TextExample
from litebert.tasks.named import open_dataset
from litebert.tasks.tables.dataset import table_dataset
from tests.tables import Write, csv_text, jsonl, numbered_reviews

STORY = "Anna took a red ball to the river in the morning."
CHOICE_HEAD = "question,A,B,C,answer\nWhat?,ball,map,river,C\n"
FEWER_CHOICES = CHOICE_HEAD + "Who?,Anna,Bert,,B\n"
OPTIONS = {"question": "What?", "options": ["ball", "map", "river"]}
MARKS = "text,toxic,rude\n"
IN_COLUMNS = {"columns": ["label=toxic,rude"]}
SETS = {"problem": "multi-label"}


def read_examples(write: Write, name: str, content: str, **chosen: Any) -> list[Any]:
    path = write(name, content)
    return table_dataset(path, path, **chosen).read(path, "train")


# ---- labels --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "chosen", "labels"),
    [
        pytest.param(
            "r.csv",
            "text,label\nten,10\nnine,9\nagain,9\n",
            {},
            [1, 0, 0],
            id="numbers by their own order",
        ),
        pytest.param(
            "r.csv",
            "text,label\none,red|old\ntwo,\nthree,old\n",
            SETS,
            [(0, 1), (), (0,)],
            id="sets in a cell",
        ),
        pytest.param(
            "r.csv",
            MARKS + "one,1.0,no\ntwo,0,\nthree,1,True\n",
            IN_COLUMNS,
            [(0,), (), (0, 1)],
            id="a column for each label",
        ),
        pytest.param(
            "r.csv",
            MARKS + "a,1,0\nb,0,1\n",
            {"columns": ["label=toxic,toxic,rude"]},
            [(0,), (1,)],
            id="a column named twice",
        ),
        pytest.param(
            "r.csv",
            "text,gro\u0308ße\na,schön\nb,scho\u0308n\nc,öde\n",
            {"columns": ["label=größe"]},
            [0, 0, 1],
            id="accents in two forms",
        ),
        pytest.param(
            "r.jsonl",
            jsonl({"text": label, "gro\u0308ße": label} for label in "abba"),
            {"columns": ["label=größe"]},
            [0, 1, 1, 0],
            id="accents of a key",
        ),
        pytest.param(
            "c.jsonl",
            jsonl(OPTIONS | {"answer": answer} for answer in ("A", "C", None)),
            {"skips_unlabeled": True},
            [0, 2],
            id="a choice without a label",
        ),
    ],
)
def test_labels_are_read(
    name: str, content: str, chosen: dict[str, Any], labels: list[Any], write: Write
) -> None:
    examples = read_examples(write, name, content, **chosen)
    assert [example.label for example in examples] == labels


@pytest.mark.parametrize(
    "answers",
    [
        [0, 2, 1],
        ["1", "3", "2"],
        ["A", "C", "B"],
        ["a", "c", "b"],
        ["ball", "river", "map"],
    ],
)
def test_choices_are_named_by_number_letter_or_text(
    answers: list[object], write: Write
) -> None:
    rows = jsonl(OPTIONS | {"answer": answer} for answer in answers)
    examples = read_examples(write, "c.jsonl", rows)
    assert [example.label for example in examples] == [0, 2, 1]


# ---- texts, words, choices, ids ------------------------------------------------------

TWO_WORDS = TagExample("2", ("Anna", "took"), (0, 1))
NAMED_CHOICES = {
    "question": "What?",
    "choices": {"text": ["ball", "map"], "label": ["x", "y"]},
    "answerKey": "y",
}


@pytest.mark.parametrize(
    ("name", "content", "example"),
    [
        pytest.param("t.csv", "words,tags\nAnna took,B-PER O\n", TWO_WORDS, id="words"),
        pytest.param(
            "t.csv",
            csv_text([("words", "tags"), ("['Anna', 'took']", "['B-PER', 'O']")]),
            TWO_WORDS,
            id="lists in cells",
        ),
        pytest.param(
            "c.jsonl",
            jsonl([NAMED_CHOICES]),
            ChoiceExample("1", "", "What?", ("ball", "map"), 1),
            id="named choices",
        ),
        pytest.param(
            "c.csv",
            FEWER_CHOICES,
            ChoiceExample("3", "", "Who?", ("Anna", "Bert"), 1),
            id="fewer choices",
        ),
        pytest.param(
            "r.jsonl",
            jsonl([{"text": "a", "label": 0}, {"text": None, "label": 1}]),
            TextExample("2", "", None, 1),
            id="no text",
        ),
        pytest.param(
            "r.csv",
            "id,text,label\nx,a,pos\nx,b,neg\n",
            TextExample("3", "b", None, 0),
            id="ids that repeat",
        ),
    ],
)
def test_the_last_row_becomes_its_example(
    name: str, content: str, example: object, write: Write
) -> None:
    assert read_examples(write, name, content)[-1] == example


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


# ---- refusals ------------------------------------------------------------------------

TAGS = [
    {"tokens": ["a", "b"], "tags": ["O", "B-X"]},
    {"tokens": ["a"], "tags": ["O", "O"]},
]
NOT_THERE = {"question": "?", "context": STORY, "answer": "blue ball"}


@pytest.mark.parametrize(
    ("name", "content", "chosen", "code"),
    [
        pytest.param(
            "r.csv",
            "text,price\none day,€3\nso be it,€4\nso on,€5\nwell,€6\n",
            {},
            "LB-861(.|\n)*no units",
            id="no labels",
        ),
        pytest.param(
            "r.csv",
            "text,label\nso good,pos\nso bad,pos\n",
            {},
            "LB-856",
            id="one label",
        ),
        pytest.param(
            "r.csv",
            "text,label\n" + "".join(f"so good,{n}x\n" for n in range(99)),
            {},
            "LB-862(.|\n)*1234.5",
            id="only labels",
        ),
        pytest.param(
            "r.csv",
            "text,score\nso good,1.5\nso bad,none\n",
            {"problem": "regression"},
            "LB-859",
            id="no score",
        ),
        pytest.param(
            "r.csv",
            "text,score\n" + "so,0.5\nno,1.5\n" * 30 + "nan,nan\n",
            {},
            "LB-859.*line 62",
            id="nan",
        ),
        pytest.param(
            "r.jsonl",
            '{"text": "so", "label": 1}\n{"text": "no", "label": 2}\n' * 20
            + '{"text": "no", "label": 1e400}\n',
            {},
            "LB-857.*line 41: there is no label",
            id="infinite",
        ),
        pytest.param(
            "r.csv",
            "text,label\n" + "so,0\nno,1\n" * 30 + "nan,nan\n",
            {},
            "LB-857.*line 62",
            id="nan among classes",
        ),
        pytest.param(
            "r.csv",
            numbered_reviews() + "nothing said,\n",
            {},
            "LB-857.*line 42: there is no label",
            id="nothing",
        ),
        pytest.param(
            "r.csv", MARKS + "one,maybe,0\n", IN_COLUMNS, "LB-860.*line 2", id="no mark"
        ),
        pytest.param(
            "t.jsonl",
            jsonl(TAGS),
            {},
            r"LB-863: .*line 2: .*\n.*1 words, 2 tags",
            id="a tag too many",
        ),
        pytest.param(
            "c.csv",
            CHOICE_HEAD + "Who?,Anna,,,A\n",
            {},
            "LB-864: .*line 3(.|\n)*2 or more",
            id="one choice",
        ),
        pytest.param(
            "r.csv",
            MARKS + "one,1,0\n",
            IN_COLUMNS | {"problem": "regression"},
            "LB-892",
            id="marks of another problem",
        ),
        pytest.param(
            "c.csv",
            CHOICE_HEAD.replace("C\n", "1\n") + "Who?,Anna,Bert,Cid,2\n",
            {},
            "LB-893",
            id="0 or 1 first",
        ),
        pytest.param(
            "c.jsonl",
            jsonl(OPTIONS | {"answer": answer} for answer in "ABCE"),
            {},
            "LB-865: .*line 4",
            id="a misspelt choice",
        ),
        pytest.param(
            "r.jsonl",
            jsonl([{"text": "so be it", "tags": []}] * 2),
            SETS,
            "LB-856",
            id="no label in any row",
        ),
        pytest.param(
            "r.jsonl",
            jsonl({"text": ["a", "b"], "label": label} for label in "xy"),
            {},
            "LB-824: .*line 1",
            id="a list as text",
        ),
        pytest.param(
            "c.csv",
            CHOICE_HEAD + "Who?,Anna,Bert,,C\n",
            {},
            "LB-865: .*line 3",
            id="no such choice",
        ),
        pytest.param(
            "q.jsonl",
            jsonl([NOT_THERE] * 2),
            {"problem": "question-answering"},
            "LB-802: .*line 1",
            id="an answer that is not there",
        ),
    ],
)
def test_rows_that_cannot_be_learned_are_refused(
    name: str, content: str, chosen: dict[str, Any], code: str, write: Write
) -> None:
    with pytest.raises(LitebertError, match=code):
        read_examples(write, name, content, **chosen)


# ---- rows without labels, and answers ------------------------------------------------


def test_rows_without_a_label_are_omitted_and_counted_on_request(write: Write) -> None:
    scores = [f"{number % 4}.5" for number in range(30)]
    rows = [("text", "score")]
    for number, score in enumerate([*scores, "", "nan"]):
        rows.append((f"row {number}", score))
    path = write("c.csv", csv_text(rows))
    data = TaskDataConfig(train=str(path), missing_labels="skip")
    dataset = open_dataset(TaskConfig(name="table"), data)
    assert f"{path.name}: omitted 2 rows without a label" in dataset.notes
    trained = dataset.read(path, "train")
    held_out = dataset.read(path, "dev")
    assert len(trained) + len(held_out) == 30


def written_answers(write: Write, content: str, answers: list[Scores]) -> str:
    """Return the file of answers to the rows of a table."""
    path = write("r.csv", content)
    dataset = table_dataset(path, path)
    files = dataset.submission("test", dataset.read(path, "test"), answers)
    assert list(files) == ["test.csv"]
    return files["test.csv"]


def test_answers_are_written_with_all_probabilities_and_blank_rows_have_none(
    write: Write,
) -> None:
    rows = 'id,text,label\nx,a,pos\ny,b,neg\nz,"  ",neg\n'
    answers = [Scores((0.25, 0.75)), Scores((0.9, 0.1)), Scores((0.9, 0.1))]
    assert written_answers(write, rows, answers) == (
        "id,prediction,neg,pos\nx,pos,0.25,0.75\ny,neg,0.9,0.1\nz,,,\n"
    )


def test_choices_are_written_by_their_texts(write: Write) -> None:
    answers = [Scores((0.1, 0.2, 0.7)), Scores((0.6, 0.4))]
    assert written_answers(write, FEWER_CHOICES, answers) == (
        "id,prediction,choice 1,choice 2,choice 3\n"
        "2,river,0.1,0.2,0.7\n"
        "3,Anna,0.6,0.4,\n"
    )
