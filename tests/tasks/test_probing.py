"""Layers fitted in closed form, and the loss that ranks pairs by their cosines."""

import numpy as np
import pytest
import torch

from litebert.config import HeadConfig
from litebert.tasks.kinds.linear import (
    fit_scores,
    fit_sigmoids,
    fit_softmax,
    in_own_span,
)
from litebert.tasks.kinds.similarity import Similarity
from litebert.tasks.kinds.text import Regression
from litebert.tasks.probing import STRENGTHS, choose_strength, cross_validate

ROWS = np.random.default_rng(1).standard_normal((60, 5))
ONES = np.ones(60)


@pytest.mark.parametrize("num_labels", [2, 3])
def test_the_layer_of_labels_is_the_minimum_of_its_penalized_loss(
    num_labels: int,
) -> None:
    labels = (ROWS[:, :num_labels] + 0.5 * ROWS[:, 2:3]).argmax(1)
    strength = 0.3
    layer = fit_softmax(ROWS, labels, ONES, strength, num_labels=num_labels)
    logits = torch.from_numpy(layer(ROWS))
    probabilities = logits.softmax(-1).numpy()
    errors = probabilities - np.eye(num_labels)[labels]
    # of C * loss + |w|^2 / 2; two labels share one vector w, so each half counts twice
    pull = 2 if num_labels == 2 else 1
    gradient = strength * errors.T @ ROWS + pull * layer.weight
    assert np.abs(gradient).max() < 1e-2
    assert np.abs(errors.sum(0)).max() < 1e-2


def test_labels_that_no_row_has_stay_possible() -> None:
    labels = np.where(ROWS[:, 0] > 0, 3, 1)
    layer = fit_softmax(ROWS, labels, ONES, 1.0, num_labels=4)
    found = layer(ROWS).argmax(1)
    assert (found == labels).mean() > 0.9
    assert np.isfinite(layer.bias).all() and not layer.weight[[0, 2]].any()
    alone = fit_softmax(ROWS, np.full(60, 2), ONES, 1.0, num_labels=4)
    assert (alone(ROWS).argmax(1) == 2).all()
    marks = np.stack([ROWS[:, 0] > 0, ROWS[:, 0] > 9], 1).astype(np.int64)
    several = fit_sigmoids(ROWS, marks, ONES, 1.0)(ROWS) > 0
    assert (several == marks.astype(bool)).mean() > 0.9 and not several[:, 1].any()


def test_the_strength_means_the_same_on_every_scale_of_the_scores() -> None:
    scores = ROWS @ np.arange(5.0) + 7
    small = fit_scores(ROWS, scores, ONES, 0.1)
    large = fit_scores(ROWS, 1_000 * scores, ONES, 0.1)
    np.testing.assert_allclose(large(ROWS), 1_000 * small(ROWS), rtol=1e-9)


def test_rows_in_the_basis_of_their_span_give_the_same_answers() -> None:
    wide = np.random.default_rng(4).standard_normal((60, 200))
    narrow = in_own_span(wide)
    assert narrow.shape == (60, 60)
    np.testing.assert_allclose(narrow @ narrow.T, wide @ wide.T, atol=1e-9)
    family = Regression(HeadConfig(**SCORE))
    scores = (wide[:, :1] + wide[:, 1:2]).astype(np.float32)
    outputs = [
        cross_validate(family, rows, scores, ONES, 0.01) for rows in (wide, narrow)
    ]
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-6, atol=1e-9)
    assert in_own_span(ROWS) is ROWS


def loss_at(rows: np.ndarray, scores: np.ndarray, strength: float) -> float:
    family = Regression(HeadConfig(**SCORE))
    outputs = cross_validate(family, rows, scores, ONES, strength)
    return float(np.square(outputs - scores).mean())


def test_the_strength_is_chosen_on_rows_that_were_not_fitted() -> None:
    family = Regression(HeadConfig(**SCORE))
    wide = np.random.default_rng(2).standard_normal((60, 200))
    clear = (3 * wide[:, :1]).astype(np.float32)
    noise = np.random.default_rng(3).standard_normal((60, 1)).astype(np.float32)
    chosen = [choose_strength(family, wide, goal, ONES) for goal in (clear, noise)]
    assert chosen[1] == STRENGTHS[0] < chosen[0]
    assert chosen[0] == min(
        STRENGTHS, key=lambda strength: loss_at(wide, clear, strength)
    )
    outputs = cross_validate(family, wide, noise, ONES, chosen[1])
    assert outputs.shape == (60, 1)
    assert abs(np.corrcoef(outputs[:, 0], noise[:, 0])[0, 1]) < 0.5


SCORE = {
    "kind": "vector-classification",
    "labels": ("score",),
    "problem_type": "regression",
}


def test_the_loss_of_similarity_is_one_minus_the_correlation_of_a_batch() -> None:
    family = Similarity(HeadConfig(kind="text-vectors"))
    vectors = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    vectors.requires_grad_()
    cosines = family.by_example(vectors)
    scores = torch.tensor([2.0, 0.0, 2.0, 5.0])
    expected = 1 - np.corrcoef(cosines.detach()[:, 0], scores)[0, 1]
    losses = family.losses_of(cosines, scores)
    assert losses.tolist() == pytest.approx([expected] * 4, rel=1e-4)
    # neither the scale of the scores nor their mean matters
    scaled = family.losses_of(cosines, 100 * scores - 7)
    assert scaled.tolist() == pytest.approx(losses.tolist(), rel=1e-4)


@pytest.mark.parametrize("scores", [[1.0], [3.0, 3.0, 3.0]])
def test_equal_scores_teach_vectors_nothing(scores: list[float]) -> None:
    family = Similarity(HeadConfig(kind="text-vectors"))
    vectors = torch.randn(
        2 * len(scores), 6, generator=torch.Generator().manual_seed(1)
    )
    vectors.requires_grad_()
    losses = family.losses_of(family.by_example(vectors), torch.tensor(scores))
    assert losses.tolist() == [1.0] * len(scores)
    losses.sum().backward()
    assert vectors.grad is not None and not vectors.grad.any()
