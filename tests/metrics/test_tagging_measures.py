"""Entities are counted as conlleval counts them (expected values worked out by hand from it)."""

import pytest

from litebert.metrics import entities, tagging_measures


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-PER I-PER O", [("PER", 0, 2)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("I-LOC I-LOC O I-PER", [("LOC", 0, 2), ("PER", 3, 4)]),
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("O B-a-b I-a-b", [("a-b", 1, 3)]),
        ("", []),
    ],
)
def test_entities_begin_and_end_as_in_conlleval(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == expected


def test_an_entity_counts_only_whole_and_of_the_right_kind() -> None:
    wanted = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    found = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O"]]
    assert tagging_measures(wanted, found) == pytest.approx(
        {"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "accuracy": 4 / 6}
    )


def test_sentences_without_entities_measure_0_and_each_has_its_own() -> None:
    assert tagging_measures([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 1.0}
    assert tagging_measures([["B-PER"], ["O"]], [["O"], ["B-PER"]])["f1"] == 0.0
