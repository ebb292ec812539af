"""When no answer is given: the official evaluation with its quirks, and the clean threshold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.metrics import squad2_measures
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    GoldAnswer,
    ProposedSpan,
    SpanAnswer,
    SpanExample,
    answered,
    given_texts,
    gold,
    official_threshold,
    tuned_threshold,
)

CONTEXT = "Ada left."
ADA = (GoldAnswer("Ada", 0),)


def _example(key: str, *, is_impossible: bool) -> SpanExample:
    return SpanExample(key, "Who?", CONTEXT, () if is_impossible else ADA)


def _answer(null_score: float, text: str = "Ada") -> SpanAnswer:
    return SpanAnswer(text, (ProposedSpan(text, 0, 3, 0.0, 0.0),), null_score)


def _questions(rows: list[tuple[bool, float]]) -> tuple[list[SpanExample], list[SpanAnswer]]:
    examples = [_example(str(n), is_impossible=bad) for n, (bad, _) in enumerate(rows)]
    return examples, [_answer(null) for _, null in rows]


SEPARABLE = [(False, -3.0), (False, -2.0), (True, 0.5), (True, 4.0)]


def test_the_official_threshold_leaves_the_question_that_set_it_unanswered() -> None:
    examples, answers = _questions(SEPARABLE)
    assert official_threshold(examples, answers) == -2.0
    assert given_texts(examples, answers) == ["Ada", "", "", ""]
    measured = ConditionalSpanAnswering().measures(examples, answers)
    assert (measured["f1"], measured["best_f1"], measured["threshold"]) == (75.0, 100.0, -2.0)


def test_the_clean_threshold_lies_between_and_gets_all_right() -> None:
    examples, answers = _questions(SEPARABLE)
    threshold = tuned_threshold(examples, answers)
    assert threshold == -0.75
    family = ConditionalSpanAnswering(null_threshold=threshold)
    measured = family.measures(examples, answers)
    assert (measured["f1"], measured["threshold"]) == (100.0, threshold)


def test_a_logit_above_1_is_no_answer_officially_whatever_was_tuned() -> None:
    examples, answers = _questions([(False, 2.0), (False, 3.0), (True, 4.0)])
    official = ConditionalSpanAnswering().measures(examples, answers)
    assert (official["threshold"], official["best_f1"]) == (3.0, 100.0)
    assert official["f1"] == pytest.approx(100 / 3)
    clean = ConditionalSpanAnswering(null_threshold=3.5).measures(examples, answers)
    assert clean["f1"] == 100.0


def test_where_answering_nothing_is_best_the_official_threshold_answers_negative_scores() -> None:
    examples, answers = _questions([(True, -2.0), (True, 3.0)])
    assert official_threshold(examples, answers) == 0.0
    assert given_texts(examples, answers) == ["Ada", ""]
    assert answered(examples, answers, tuned_threshold(examples, answers)) == {"0": "", "1": ""}


def test_where_nobody_knows_the_answers_even_odds_decide() -> None:
    family = ConditionalSpanAnswering()
    unlabelled = [SpanExample("q", "Who?", CONTEXT)]
    sure = family.averaged([[_answer(-0.5)]])
    unsure = family.averaged([[_answer(0.5)]])
    assert given_texts(unlabelled, sure) == ["Ada"]
    assert given_texts(unlabelled, unsure) == [""]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.booleans(), st.integers(-4, 4)), min_size=1, max_size=12))
def test_no_threshold_does_better_than_the_clean_one(rows: list[tuple[bool, int]]) -> None:
    examples, answers = _questions([(bad, float(null)) for bad, null in rows])

    def f1(threshold: float) -> float:
        return squad2_measures(gold(examples), answered(examples, answers, threshold))["f1"]

    best = max(f1(threshold) for threshold in np.arange(-5.0, 6.0, 0.5))
    assert f1(tuned_threshold(examples, answers)) == best


def test_nothing_cannot_be_tuned_or_measured() -> None:
    with pytest.raises(LitebertError, match="LB-430"):
        tuned_threshold([], [])
    with pytest.raises(LitebertError, match="LB-430"):
        ConditionalSpanAnswering().measures([SpanExample("q", "Who?", CONTEXT)], [_answer(0.0)])
