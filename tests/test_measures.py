"""Measures are those of their field, of conlleval and of the official scripts; empty
inputs are refused.

Expected values of answers were printed by evaluate-v1.1.py and evaluate-v2.0.py, those
of tags worked out by hand.
"""

from functools import partial

import numpy as np
import pytest

from litebert.errors import LitebertError
from litebert.metrics import (
    classification_measures,
    entities,
    multi_label_measures,
    normalize_answer,
    regression_measures,
    squad1_measures,
    squad2_measures,
    tagging_measures,
    threshold_measures,
    word_f1,
)

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "B-ORG")


def test_labels_and_scores_are_measured_by_the_measures_of_their_field() -> None:
    """scikit-learn and scipy compute the numbers; this tests which ones are given, and
    when.
    """
    wanted = np.array([0, 1, 1, 0])
    answers = np.array([0, 1, 0, 0])
    two = classification_measures(wanted, np.eye(2)[answers])
    # f1 of label 1
    assert two == pytest.approx({"accuracy": 3 / 4, "f1": 2 / 3, "matthews": 3**-0.5})
    # macro: of the labels that occur
    three = classification_measures(wanted, np.eye(3)[answers])
    assert three == pytest.approx(
        {"accuracy": 3 / 4, "macro_f1": (2 / 3 + 4 / 5) / 2, "matthews": 3**-0.5}
    )
    # 0 / 0
    assert classification_measures(wanted, np.eye(2)[[0] * 4])["matthews"] == 0.0
    marked = multi_label_measures(
        np.array([[1, 0], [1, 1]]), np.array([[0.5, 0.1], [0.9, 0.4]])
    )
    assert marked == pytest.approx(
        {"micro_f1": 4 / 5, "macro_f1": 1 / 2, "exact_match": 1 / 2}
    )
    scores = regression_measures(
        np.array([[1.0], [2.0], [3.0], [3.0]]), np.array([[1.0], [3.0], [2.0], [2.0]])
    )
    # ties share their mean rank
    ranks = np.corrcoef([1, 2, 3.5, 3.5], [1, 4, 2.5, 2.5])[0, 1]
    pearson = np.corrcoef([1, 2, 3, 3], [1, 3, 2, 2])[0, 1]
    assert scores == pytest.approx(
        {"pearson": pearson, "spearman": ranks, "mse": 3 / 4}
    )
    # constant, but for rounding
    never = regression_measures(np.arange(3.0), np.array([0.1, 0.1, 0.1]))
    assert (never["pearson"], never["spearman"]) == (0.0, 0.0)


ENTITIES = {
    "O O": [],
    "B-PER I-PER O": [("PER", 0, 2)],
    "B-PER B-PER": [("PER", 0, 1), ("PER", 1, 2)],
    "I-LOC I-LOC O I-PER": [("LOC", 0, 2), ("PER", 3, 4)],
    "B-PER I-LOC": [("PER", 0, 1), ("LOC", 1, 2)],
    "I-PER B-PER I-PER": [("PER", 0, 1), ("PER", 1, 3)],
    "O B-a-b I-a-b": [("a-b", 1, 3)],
    "B I O I B": [("", 0, 2), ("", 3, 4), ("", 4, 5)],
    "B-PER I-PER E-PER O S-LOC S-LOC": [("PER", 0, 3), ("LOC", 4, 5), ("LOC", 5, 6)],
    "E-PER E-PER U-a B-b L-c I-c": [
        ("PER", 0, 1),
        ("PER", 1, 2),
        ("a", 2, 3),
        ("b", 3, 4),
        ("c", 4, 5),
        ("c", 5, 6),
    ],
    "": [],
}


def test_entities_begin_and_end_as_in_conlleval() -> None:
    assert {tags: entities(tags.split()) for tags in ENTITIES} == ENTITIES


def test_an_entity_counts_only_whole_in_its_sentence_and_of_the_right_kind() -> None:
    wanted = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    answers = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O"]]
    third = {"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "accuracy": 4 / 6}
    assert tagging_measures(wanted, answers, TAGS) == pytest.approx(third)
    assert tagging_measures([["O"]], [["O"]], TAGS) == {
        "precision": 0.0,
        "recall": 0.0,
        "f1": 0.0,
        "accuracy": 1.0,
    }
    assert tagging_measures([["B-PER"], ["O"]], [["O"], ["B-PER"]], TAGS)["f1"] == 0.0


GOLD = {
    "a": ["the Nile", "Nile river"],
    "b": ["12 km"],
    "c": [],
    "d": ["an army"],
    "e": [],
    "f": ["the"],
}
FOUND = {
    "a": "The  Nile's river",
    "b": "about 12 km away",
    "c": "",
    "d": "",
    "e": "x",
    "f": "",
}
NULLS = {"e": 0.5, "b": -1.5, "a": -2.0, "d": 0.5, "c": 3.0, "f": -1.5}


def test_answers_are_normalised_as_officially() -> None:
    expected = {
        "A man, a plan": "man plan",
        "the-theatre": "thetheatre",
        "\u2019tis \u201cthe\u201d end": "\u2019tis \u201c \u201d end",
        "a\u00a0b\n\tc": "b c",
        "İstanbul": "i\u0307stanbul",
        "1,905%": "1905",
        "an": "",
    }
    assert {text: normalize_answer(text) for text in expected} == expected


def test_measures_of_answers_are_the_official_ones() -> None:
    # "d" is missing, which is wrong
    answers = {"a": "Nile", "b": "about 12 km away", "x": "passed over"}
    first = {"exact": 33.333333333333336, "f1": 55.55555555555555, "total": 3}
    assert squad1_measures(
        {name: GOLD[name] for name in "abd"}, answers
    ) == pytest.approx(first, rel=1e-14)
    second = {
        "exact": 33.333333333333336,
        "f1": 52.77777777777777,
        "total": 6,
        "no_answer_total": 2,
    }
    second |= {
        "has_answer_exact": 25.0,
        "has_answer_f1": 54.166666666666664,
        "has_answer_total": 4,
    }
    second |= {"no_answer_exact": 50.0, "no_answer_f1": 50.0}
    assert squad2_measures(GOLD, FOUND, NULLS) == pytest.approx(second, rel=1e-14)
    thresholds = {
        "best_exact": 50.0,
        "best_exact_threshold": -1.5,
        "exact_average_precision": 8.333333333333332,
    }
    thresholds |= {
        "best_f1": 69.44444444444444,
        "best_f1_threshold": -1.5,
        "f1_average_precision": 36.34259259259259,
    }
    assert threshold_measures(GOLD, FOUND, NULLS) == pytest.approx(
        thresholds, rel=1e-14
    )


def test_empty_missing_and_doubtful_answers_count_as_officially() -> None:
    assert (word_f1("long long road", "long road road"), word_f1("the", "")) == (
        pytest.approx(2 / 3),
        1.0,
    )
    assert squad1_measures({"q": ["the"]}, {"q": "a"}) == {
        "exact": 100.0,
        "f1": 0.0,
        "total": 1,
    }
    # above the threshold there is no answer
    for null, exact in ((1.5, 100.0), (1.0, 0.0)):
        assert squad2_measures({"q": []}, {"q": "x"}, {"q": null})["exact"] == exact
    nothing = threshold_measures({"q": []}, {"q": "x"}, {"q": -5.0})
    assert (nothing["best_f1"], nothing["best_f1_threshold"]) == (100.0, 0.0)
    partly = squad2_measures(GOLD, {"e": ""})
    assert (partly["exact"], partly["total"]) == (100.0, 1)


def test_empty_inputs_are_refused() -> None:
    none = np.zeros((0, 2))
    marks = np.zeros((0, 2), dtype=np.int64)
    calls = [
        (squad1_measures, {}, {}),
        (squad2_measures, GOLD, {}),
        (threshold_measures, GOLD, {}, {}),
    ]
    calls += [
        (partial(tagging_measures, labels=TAGS), [[]], [[]]),
        (classification_measures, marks[:, 0], none),
    ]
    calls += [
        (multi_label_measures, marks, none),
        (regression_measures, none[:, :1], none[:, :1]),
    ]
    for measure, *wanted_and_found in calls:
        with pytest.raises(LitebertError, match="LB-430"):
            measure(*wanted_and_found)
