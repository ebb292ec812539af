"""Results that are not to be trusted: the reasons that are given."""

from collections.abc import Sequence

import pytest

from litebert.runs import AnswerRow
from litebert.tasks.doubts import doubts


def rows_of(texts: Sequence[str], labels: str, answers: str) -> list[AnswerRow]:
    """Return a row for each text, whose labels and answers are single letters."""
    rows = []
    for number, text in enumerate(texts):
        label = labels[number % len(labels)]
        answer = answers[number % len(answers)]
        is_right = float(label == answer)
        rows.append(AnswerRow(str(number), text, label, answer, 0.9, is_right))
    return rows


# ---- accuracies ----------------------------------------------------------------------

# 1,000 answers, half of them right
MANY = rows_of([f"ball {number}" for number in range(1_000)], "ab", "aabb")


def doubts_of_accuracy(accuracy: float, rows: list[AnswerRow]) -> tuple[str, ...]:
    """Return the doubts of a model with this accuracy, where 0.5 needs no learning."""
    return doubts("accuracy", {"accuracy": accuracy}, {"accuracy": 0.5}, {"dev": rows})


def test_a_result_that_is_no_better_than_the_baseline_is_doubted() -> None:
    (reason,) = doubts_of_accuracy(0.5, MANY)
    assert "0.5000 is no better than always giving the most common label" in reason


def test_a_difference_that_may_be_chance_is_doubted() -> None:
    (reason,) = doubts_of_accuracy(0.51, MANY)
    # two standard errors: 2 * sqrt(0.51 * 0.49 / 1000)
    assert "below 3.2 points may be chance" in reason


def test_a_clear_result_on_many_rows_is_not_doubted() -> None:
    assert not doubts_of_accuracy(0.6, MANY)


def test_a_perfect_result_on_one_row_is_doubted() -> None:
    (reason,) = doubts_of_accuracy(1.0, MANY[:1])
    assert "1.0000 on 1 row" in reason


# ---- answers -------------------------------------------------------------------------


def test_the_same_answer_to_different_texts_is_doubted() -> None:
    rows = rows_of(["a ball", "a map"], labels="ab", answers="a")
    (reason,) = doubts("accuracy", {}, {}, {"dev": rows})
    assert reason == "every answer to dev is the same: a"


def test_the_same_answer_to_the_same_text_is_not_doubted() -> None:
    rows = rows_of(["a ball", "a ball"], labels="ab", answers="a")
    assert not doubts("accuracy", {}, {}, {"dev": rows})


def test_answers_of_which_none_is_right_are_doubted() -> None:
    rows = rows_of(["a ball", "a map"], labels="ab", answers="ba")
    (reason,) = doubts("accuracy", {}, {}, {"dev": rows})
    assert reason == "not one of the 2 answers to dev is right"


# ---- correlations --------------------------------------------------------------------


def doubts_of_correlation(num_rows: int) -> tuple[str, ...]:
    rows = []
    for number in range(num_rows):
        score = str(number)
        rows.append(AnswerRow(score, f"ball {score}", score, score, None, 0.9))
    return doubts("spearman", {"spearman": 0.85}, {}, {"dev": rows})


def test_a_correlation_on_few_rows_is_doubted() -> None:
    (reason,) = doubts_of_correlation(15)
    # tanh(atanh(0.85) - 2 / sqrt(12)) and tanh(atanh(0.85) + 2 / sqrt(12))
    assert "0.8500 on 15 rows" in reason
    assert "between 0.59 and 0.95" in reason


def test_a_correlation_on_many_rows_is_not_doubted() -> None:
    assert not doubts_of_correlation(400)


@pytest.mark.parametrize("num_rows", [2, 3])
def test_a_correlation_on_three_rows_says_nothing(num_rows: int) -> None:
    assert doubts_of_correlation(num_rows) == (
        f"spearman 0.8500 on {num_rows} rows says nothing",
    )
