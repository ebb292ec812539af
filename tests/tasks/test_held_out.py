"""Rows that are held out of a training file: the same ones in any order of rows, with the
same share of each label, and no text that is trained on.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from litebert.errors import LitebertError
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, SpanAnswering
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.held_out import draw_held_out
from tests.tables import Write, csv_text, numbered_reviews

Rows = list[tuple[str, str]]

# ---- which rows are drawn ------------------------------------------------------------


@pytest.mark.parametrize("name", "abcdefgh")
def test_a_text_of_many_rows_is_drawn_as_a_whole_or_not_at_all(name: str) -> None:
    rows = [(name, "")] * 100 + [(name * 2, "")] * 10
    assert draw_held_out(rows, 0.1).sum() == 10


def test_something_is_left_to_learn_from() -> None:
    rows = [("a", "")] * 3 + [("b", "")] * 2
    assert draw_held_out(rows, 0.9).sum() == 2


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
    labeled_twice: Rows = []
    labeled_x: Rows = []
    for number in range(20):
        text = f"text {number}"
        labeled_twice += [(text, "y"), (text, "x")]
        labeled_x += [(text, "x"), (text, "x")]
    is_drawn = draw_held_out(others + labeled_twice, 0.2)
    expected = draw_held_out(others + labeled_x, 0.2)
    assert is_drawn.tolist() == expected.tolist()


# ---- the rows of a file --------------------------------------------------------------


def texts_of(dataset: Dataset[Any, Any], path: Path, split: str) -> set[str]:
    return {example.first for example in dataset.read(path, split)}


@pytest.fixture
def every_text_twice() -> Rows:
    rows = list[tuple[str, str]]()
    for number in range(400):
        rows.append((f"row {number // 2}", "a" if number < 40 else "b"))
    return rows


def test_held_out_rows_share_no_text_with_others_and_are_the_same_share_of_each_label(
    every_text_twice: Rows, write: Write
) -> None:
    path = write("rows.csv", csv_text([("text", "label"), *every_text_twice]))
    dataset = table_dataset(path)
    held_out = texts_of(dataset, path, "dev")
    assert held_out.isdisjoint(texts_of(dataset, path, "train"))
    labels = Counter(example.label for example in dataset.read(path, "dev"))
    assert labels == {0: 4, 1: 36}


def test_held_out_rows_do_not_depend_on_the_order_of_rows(
    every_text_twice: Rows, write: Write
) -> None:
    header = ("text", "label")
    path = write("rows.csv", csv_text([header, *every_text_twice]))
    turned = write("turned.csv", csv_text([header, *reversed(every_text_twice)]))
    held_out = texts_of(table_dataset(path), path, "dev")
    assert texts_of(table_dataset(turned), turned, "dev") == held_out


def test_rows_of_one_text_are_held_out_by_their_number(write: Write) -> None:
    rows = [("text", "label"), *[("the same", "a"), ("the same", "b")] * 9]
    path = write("alike.csv", csv_text(rows))
    assert len(table_dataset(path).read(path, "dev")) == 2


def test_of_a_single_row_none_can_be_held_out(write: Write) -> None:
    path = write("row.csv", "text,label\na,x|y\n")
    with pytest.raises(LitebertError, match="LB-894"):
        table_dataset(path, problem="multi-label").read(path, "train")


def questions(*, is_impossible: bool) -> str:
    """Return ten contexts with two questions each, as SQuAD lays them out."""
    answer = {"text": "red ball", "answer_start": 12}
    question = {"question": "What?", "answers": [answer]}
    second = question | {"answers": []} if is_impossible else question
    paragraphs = list[dict[str, object]]()
    for number in range(10):
        context = f"Anna took a red ball to the river in the morning. {number}"
        paragraphs.append({"context": context, "qas": [question, second]})
    articles = [{"title": "T", "paragraphs": paragraphs}]
    return json.dumps({"version": "2", "data": articles})


@pytest.mark.parametrize(
    ("is_impossible", "family"),
    [(False, SpanAnswering()), (True, ConditionalSpanAnswering())],
)
def test_a_context_is_held_out_with_all_its_questions(
    is_impossible: bool, family: object, write: Write
) -> None:
    path = write("q.json", questions(is_impossible=is_impossible))
    dataset = table_dataset(path, held_out=0.3)
    assert dataset.family == family
    assert dataset.key_measure == "f1"
    trained = {example.context for example in dataset.read(path, "train")}
    held_out = {example.context for example in dataset.read(path, "dev")}
    assert held_out
    assert held_out.isdisjoint(trained)


# ---- the training file at another place, or changed ----------------------------------


def test_rows_trained_on_are_not_held_out_wherever_the_file_is(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = write("train.csv", numbered_reviews())
    link = Path("link.csv")
    monkeypatch.chdir(train.parent)
    link.symlink_to(train)
    dataset = table_dataset(Path(train.name))
    held_out = dataset.read(train, "dev")
    assert len(held_out) == 4

    recalled = table_dataset(Path("elsewhere/train.csv"), settled=dataset.settled)
    assert recalled.read(link, "dev") == held_out
    copy = write("copy.csv", numbered_reviews())
    assert recalled.read(copy, "dev") == held_out


def test_a_training_file_that_changed_has_no_held_out_rows(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = write("train.csv", numbered_reviews())
    monkeypatch.chdir(train.parent)
    link = Path("link.csv")
    link.symlink_to(train)
    settled = table_dataset(train).settled
    train.write_text(numbered_reviews(50))
    for path in (train, link):
        with pytest.raises(LitebertError, match="LB-890"):
            table_dataset(train, settled=settled).read(path, "dev")


def test_other_columns_of_the_training_file_have_no_held_out_rows(write: Write) -> None:
    train = write("train.csv", numbered_reviews())
    settled = table_dataset(train).settled
    renamed = table_dataset(train, columns=("text=label",), settled=settled)
    with pytest.raises(LitebertError, match="LB-890"):
        renamed.read(train, "dev")
