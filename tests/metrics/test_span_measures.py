"""Measures of answers are those of the official scripts, digit for digit.

Expected values of the small cases were printed by evaluate-v1.1.py and evaluate-v2.0.py.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from litebert.errors import LitebertError
from litebert.metrics import (
    classification_measures,
    exact_match,
    multi_label_measures,
    normalized_answer,
    regression_measures,
    squad1_measures,
    squad2_measures,
    tagging_measures,
    threshold_measures,
    word_f1,
)  # fmt: skip

GOLD = {"a": ["the Nile", "Nile river"], "b": ["12 km"], "c": [], "d": ["an army"], "e": [], "f": ["the"]}
FOUND = {"a": "The  Nile's river", "b": "about 12 km away", "c": "", "d": "", "e": "x", "f": ""}
NULLS = {"e": 0.5, "b": -1.5, "a": -2.0, "d": 0.5, "c": 3.0, "f": -1.5}

SAME = partial(pytest.approx, rel=1e-14)
"""Equal but for how a version of Python adds floats up."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man, a plan", "man plan"),
        ("the-theatre", "thetheatre"),
        ("\u2019tis \u201cthe\u201d end", "\u2019tis \u201c \u201d end"),
        ("a\u00a0b\n\tc", "b c"),
        ("İstanbul", "i\u0307stanbul"),
        ("1,905%", "1905"),
        ("an", ""),
    ],
)
def test_answers_are_normalised_as_officially(text: str, expected: str) -> None:
    assert normalized_answer(text) == expected


def test_two_empty_answers_agree_in_version_2_alone() -> None:
    assert word_f1("long long road", "long road road") == pytest.approx(2 / 3)
    assert (exact_match("the", ""), word_f1("the", "")) == (1.0, 1.0)
    assert squad1_measures({"q": ["the"]}, {"q": "a"}) == {"exact": 100.0, "f1": 0.0, "total": 1}


def test_version_1_takes_the_nearest_answer_and_counts_missing_ones_as_wrong() -> None:
    gold = {"a": GOLD["a"], "b": GOLD["b"], "d": GOLD["d"]}
    found = {"a": "Nile", "b": "about 12 km away", "x": "passed over"}
    measured = squad1_measures(gold, found)
    assert measured == SAME({"exact": 33.333333333333336, "f1": 55.55555555555555, "total": 3})


def test_version_2_measures_are_the_official_ones() -> None:
    measured = squad2_measures(GOLD, FOUND, NULLS)
    assert measured == SAME(
        {
            "exact": 33.333333333333336,
            "f1": 52.77777777777777,
            "total": 6,
            "has_answer_exact": 25.0,
            "has_answer_f1": 54.166666666666664,
            "has_answer_total": 4,
            "no_answer_exact": 50.0,
            "no_answer_f1": 50.0,
            "no_answer_total": 2,
        }
    )


def test_thresholds_are_the_official_ones() -> None:
    measured = threshold_measures(GOLD, FOUND, NULLS)
    assert measured == SAME(
        {
            "best_exact": 50.0,
            "best_exact_threshold": -1.5,
            "exact_average_precision": 8.333333333333332,
            "best_f1": 69.44444444444444,
            "best_f1_threshold": -1.5,
            "f1_average_precision": 36.34259259259259,
        }
    )


def test_a_null_score_above_the_threshold_counts_as_no_answer() -> None:
    above = squad2_measures({"q": []}, {"q": "x"}, {"q": 1.5})
    at = squad2_measures({"q": []}, {"q": "x"}, {"q": 1.0})
    assert (above["exact"], at["exact"]) == (100.0, 0.0)


def test_answering_nothing_has_threshold_0_and_missing_predictions_are_left_out() -> None:
    measured = threshold_measures({"q": []}, {"q": "x"}, {"q": -5.0})
    assert (measured["best_f1"], measured["best_f1_threshold"]) == (100.0, 0.0)
    measured = squad2_measures(GOLD, {"e": ""})
    assert (measured["exact"], measured["total"]) == (100.0, 1)


NOTHING = np.zeros((0, 2))


@pytest.mark.parametrize(
    "measure",
    [
        lambda: squad1_measures({}, {}),
        lambda: squad2_measures(GOLD, {}),
        lambda: threshold_measures(GOLD, {}, {}),
        lambda: tagging_measures([[]], [[]]),
        lambda: classification_measures(np.zeros(0, dtype=np.int64), NOTHING),
        lambda: multi_label_measures(NOTHING.astype(np.int64), NOTHING),
        lambda: regression_measures(NOTHING[:, :1], NOTHING[:, :1]),
    ],
)
def test_nothing_cannot_be_measured(measure: Callable[[], object]) -> None:
    with pytest.raises(LitebertError, match="LB-430"):
        measure()
