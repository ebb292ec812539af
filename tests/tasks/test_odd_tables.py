"""What is odd about a table is said before the training: totals below it, rows without
a text, labels with few rows or none, equal texts with different labels.
"""

from collections.abc import Sequence

import pytest

from litebert.config import FinetuneConfig
from litebert.errors import LitebertError
from litebert.settings import resolve, settings_from_words
from litebert.tasks.tables.dataset import table_dataset
from litebert.train.preparation import prepare
from tests.tables import Write, csv_text

Cells = Sequence[object]

NAMES: Cells = ("text", "label")
ROWS: list[Cells] = []
for number in range(20):
    ROWS.append((f"the film of day {number} was so good", "good"))
    ROWS.append((f"the film of day {number} was so bad", "bad"))


def notes_of(rows: Sequence[Cells], write: Write) -> str:
    """Return the notes on a table of texts and labels, as settling it gives them."""
    return "\n".join(table_dataset(write("a.csv", csv_text([NAMES, *rows]))).notes)


def plan_of(
    rows: Sequence[Cells],
    write: Write,
    names: Cells = NAMES,
    held_out: Sequence[Cells] = (),
) -> str:
    """Return the notes in the plan of a training on a table of texts and labels."""
    path = write("a.csv", csv_text([names, *rows]))
    words = ["task.name=table", f"data.train={path}", "model.start=litebert"]
    if held_out:
        dev = write("dev.csv", csv_text([names, *held_out]))
        words.append(f"data.dev={dev}")
    settings = resolve(FinetuneConfig, settings_from_words(words))
    prepared = prepare(settings, path.parent / "run")
    return "\n".join(prepared.dataset.notes)


def test_a_label_with_one_row_beside_labels_with_many_is_warned_of(
    write: Write,
) -> None:
    total: Cells = ("Total", 40)
    warning = "warning: 1 label with fewer than 3 rows, too few to learn: 40 (1)"
    assert warning in notes_of([*ROWS, total], write)
    assert "warning" not in notes_of(ROWS, write)
    # where all have few rows, none is a mistake
    assert "warning" not in notes_of(ROWS[:4], write)


def test_the_range_of_scores_is_told(write: Write) -> None:
    scores: list[Cells] = []
    for number, (text, _) in enumerate(ROWS):
        scores.append((text, number / 8 + 0.25))
    assert "numbers in column label, from 0.25 to 5.125" in notes_of(scores, write)
    with_total = [*scores, ("Total", 111.5)]
    assert "numbers in column label, from 0.25 to 111.5" in notes_of(with_total, write)


@pytest.mark.parametrize("cells", [("3.5",), ("3.5", "3.50")])
def test_a_column_with_one_score_is_refused_as_one_with_one_label_is(
    cells: Sequence[str], write: Write
) -> None:
    rows: list[Cells] = []
    for number, (text, _) in enumerate(ROWS):
        rows.append((text, cells[number % len(cells)]))
    with pytest.raises(LitebertError, match=r"LB-856: .*only one score") as caught:
        notes_of(rows, write)
    assert caught.value.received == "3.5 in every row"
    assert caught.value.next is not None
    assert caught.value.next.startswith("add rows with other scores")


def test_a_column_without_any_label_is_told_to_be_filled(write: Write) -> None:
    rows: list[Cells] = [(text, "") for text, _ in ROWS]
    with pytest.raises(LitebertError, match=r"LB-856: .*has no labels") as caught:
        notes_of(rows, write)
    assert caught.value.next is not None
    assert caught.value.next.startswith("write a label in each row")


def test_rows_without_a_text_are_counted_in_the_plan(write: Write) -> None:
    blank: list[Cells] = [(" ", "good"), ("", "bad")] * 10
    plan = plan_of([*ROWS, *blank], write)
    assert "rows have no text: they teach nothing, so delete them" in plan


def test_equal_texts_with_different_labels_are_counted_in_the_plan(
    write: Write,
) -> None:
    contradictory: list[Cells] = [(text, "bad") for text, _ in ROWS[:20:2]]
    plan = plan_of([*ROWS, *contradictory], write)
    assert "rows have a text to which other rows give another label" in plan
    assert "a.csv lists them" in plan
    assert "warning" not in plan_of(ROWS, write)


def test_rows_that_are_trained_and_evaluated_on_are_counted_in_the_plan(
    write: Write,
) -> None:
    new: list[Cells] = [("a new film", "good"), ("another new film", "bad")]
    plan = plan_of(ROWS, write, held_out=[*ROWS[:6], *new])
    assert "warning: 6 of 8 rows that are evaluated on stand in the training" in plan
    assert "a.csv" in plan.partition("litebert data check")[2]
    assert "dev.csv lists them" in plan
    assert "evaluated on stand in" not in plan_of(ROWS, write, held_out=new)


def test_rows_that_a_column_trains_and_evaluates_on_are_counted_in_the_plan(
    write: Write,
) -> None:
    names: Cells = (*NAMES, "split")
    train: list[Cells] = [(*row, "train") for row in ROWS]
    copies: list[Cells] = [(*row, "dev") for row in ROWS[:6]]
    new: list[Cells] = [("a new film", "good", "dev"), ("another film", "bad", "dev")]
    plan = plan_of([*train, *copies, *new], write, names)
    assert "warning: 6 of 8 rows that are evaluated on stand in the training" in plan
    assert "evaluated on stand in" not in plan_of([*train, *new], write, names)


def test_emoji_that_the_vocabulary_lacks_are_told_to_become_words(
    write: Write,
) -> None:
    smiling: list[Cells] = [(f"{text} 😀😀", label) for text, label in ROWS]
    assert "write those that matter as words" in plan_of(smiling, write)
    chinese: list[Cells] = [(f"{text} 很好", label) for text, label in ROWS]
    assert "start from a model of this language" in plan_of(chinese, write)
