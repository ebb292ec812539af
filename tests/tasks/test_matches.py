"""Texts that belong together, without labels: their loss, their ranks, their files."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.tasks.kinds.matches import SHARPNESS, Matches, VectorPair
from litebert.tasks.kinds.text import TextExample
from litebert.tasks.tables.dataset import table_dataset
from tests.tables import Write, csv_text

FAMILY = Matches(HeadConfig(kind="text-vectors"))

# The first and the last pair have the same first text.
EXAMPLES = [
    TextExample("0", "who sat", "the cat"),
    TextExample("1", "who ran", "the dog"),
    TextExample("2", "who sang", "a bird"),
    TextExample("3", "who sat", "a boy"),
]
CANDIDATES_OF = ([0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3])

# ---- the loss ------------------------------------------------------------------------


def random_vectors(seed: int) -> Tensor:
    """Draw a vector of length 1 for each example."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(EXAMPLES), 6)
    vectors = torch.randn(shape, dtype=torch.float64, generator=generator)
    return torch.nn.functional.normalize(vectors, dim=-1)


def test_a_pair_is_compared_with_all_pairs_that_share_no_text_with_it() -> None:
    firsts = random_vectors(1)
    seconds = random_vectors(2)
    hashes = np.concatenate([FAMILY.target(example) for example in EXAMPLES])
    logits = torch.cat([firsts, seconds], dim=-1)
    losses = FAMILY.losses_of(logits, torch.from_numpy(hashes))

    scores = SHARPNESS * firsts @ seconds.T
    for number, candidates in enumerate(CANDIDATES_OF):
        log_total = scores[number, candidates].logsumexp(0)
        expected = float(log_total - scores[number, number])
        assert float(losses[number]) == pytest.approx(expected, rel=1e-4)


# ---- ranks ---------------------------------------------------------------------------

AXES = np.eye(len(EXAMPLES))
# Two questions have the answer "the cat": five pairs, four candidates.
FIVE = [*EXAMPLES, TextExample("4", "who slept", "the cat")]


def right_answers() -> list[VectorPair]:
    """Return an axis for each second text, which its first text has as well."""
    axes = [*AXES, AXES[0]]
    return [VectorPair(axis, axis) for axis in axes]


def test_two_pairs_with_the_same_second_text_may_both_come_first() -> None:
    measures = FAMILY.measures(FIVE, right_answers())
    assert measures == {"mrr": 1.0, "accuracy": 1.0}


def test_a_partner_in_second_place_counts_half() -> None:
    answers = right_answers()
    nearer_to_the_dog = 0.6 * AXES[1] + 0.5 * AXES[0]
    answers[0] = VectorPair(nearer_to_the_dog, AXES[0])
    measures = FAMILY.measures(FIVE, answers)
    assert measures == pytest.approx({"mrr": 4.5 / 5, "accuracy": 4 / 5})


def test_all_orders_of_equal_cosines_are_as_likely() -> None:
    measures = FAMILY.measures(FIVE, FAMILY.constant(FIVE, FIVE))
    mean_of_four_ranks = math.fsum([1, 1 / 2, 1 / 3, 1 / 4]) / 4
    assert measures == pytest.approx({"mrr": mean_of_four_ranks, "accuracy": 1 / 4})


# ---- files ---------------------------------------------------------------------------


def table_of_pairs(*heading: str) -> str:
    """Return 40 rows of two texts below a heading, perhaps with an id before them."""
    rows: list[tuple[str, ...]] = [heading]
    for number in range(40):
        pair = (f"where is house {number}", f"it is at the river, place {number}")
        has_id = len(heading) == 3
        rows.append((f"n{number}", *pair) if has_id else pair)
    return csv_text(rows)


@pytest.mark.parametrize(
    ("heading", "first", "second"),
    [
        pytest.param(["question", "answer"], "question", "answer", id="usual"),
        pytest.param(["Frage", "Antwort"], "Frage", "Antwort", id="unknown-names"),
        pytest.param(["positive", "anchor"], "anchor", "positive", id="turned"),
        pytest.param(["id", "query", "passage"], "query", "passage", id="with-ids"),
    ],
)
def test_two_columns_of_texts_without_a_label_belong_together(
    heading: list[str], first: str, second: str, write: Write
) -> None:
    dataset = table_dataset(write("pairs.csv", table_of_pairs(*heading)))
    assert isinstance(dataset.family, Matches)
    assert dataset.settled["columns"][:2] == [f"text={first}", f"second={second}"]


def test_a_pair_without_its_second_text_is_refused_by_its_line(write: Write) -> None:
    table = table_of_pairs("question", "answer") + "where,\n"
    path = write("pairs.csv", table)
    dataset = table_dataset(path, problem="matches")
    with pytest.raises(LitebertError, match=r"LB-857(.|\n)*line 42"):
        dataset.read(path, "train")
