"""Layers fitted in closed form, and the loss that ranks pairs by their cosines."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from litebert.config import HeadConfig
from litebert.tasks.kinds.linear import (
    fit_scores,
    fit_sigmoids,
    fit_softmax,
    in_own_span,
)
from litebert.tasks.kinds.similarity import Similarity
from litebert.tasks.kinds.text import Regression
from litebert.tasks.probing import (
    NUM_FOLDS,
    STRENGTHS,
    choose_strength,
    cross_validate,
    draw_folds,
)

NUM_ROWS = 60
ONES = np.ones(NUM_ROWS)  # every row counts once
REGRESSION = Regression(
    HeadConfig(
        kind="vector-classification", labels=("score",), problem_type="regression"
    )
)


def drawn(seed: int, width: int) -> NDArray[np.float64]:
    """Draw a vector for each row: (rows, width)"""
    return np.random.default_rng(seed).standard_normal((NUM_ROWS, width))


NARROW = drawn(1, 5)
WIDE = drawn(2, 200)  # more numbers than rows

# ---- layers of labels ----------------------------------------------------------------


@pytest.mark.parametrize("num_labels", [2, 3])
def test_the_layer_of_labels_is_the_minimum_of_its_penalized_loss(
    num_labels: int,
) -> None:
    labels = (NARROW[:, :num_labels] + 0.5 * NARROW[:, 2:3]).argmax(1)
    strength = 0.3
    layer = fit_softmax(NARROW, labels, ONES, strength, num_labels=num_labels)

    # The gradient of strength * loss + |weight|^2 / 2 must vanish; two labels share one
    # vector, so each half counts twice.
    pull = 2 if num_labels == 2 else 1
    probabilities = torch.from_numpy(layer(NARROW)).softmax(-1).numpy()
    errors = probabilities - np.eye(num_labels)[labels]
    of_weight = strength * errors.T @ NARROW + pull * layer.weight
    of_bias = errors.sum(0)  # without a penalty
    assert np.abs(of_weight).max() < 1e-2
    assert np.abs(of_bias).max() < 1e-2


def test_labels_that_no_row_has_stay_possible() -> None:
    labels = np.where(NARROW[:, 0] > 0, 3, 1)
    layer = fit_softmax(NARROW, labels, ONES, 1.0, num_labels=4)
    assert (layer(NARROW).argmax(1) == labels).mean() > 0.9
    assert np.isfinite(layer.bias).all()
    assert not layer.weight[[0, 2]].any()


def test_a_label_that_all_rows_have_is_always_answered() -> None:
    labels = np.full(NUM_ROWS, 2)
    layer = fit_softmax(NARROW, labels, ONES, 1.0, num_labels=4)
    assert (layer(NARROW).argmax(1) == 2).all()


def test_a_mark_that_no_row_has_is_never_answered() -> None:
    marks = np.zeros((NUM_ROWS, 2), dtype=np.int64)
    marks[:, 0] = NARROW[:, 0] > 0
    answers = fit_sigmoids(NARROW, marks, ONES, 1.0)(NARROW) > 0
    assert (answers[:, 0] == marks[:, 0]).mean() > 0.8
    assert not answers[:, 1].any()


# ---- layers of scores ----------------------------------------------------------------


def test_the_strength_means_the_same_on_every_scale_of_the_scores() -> None:
    scores = NARROW @ np.arange(5.0) + 7
    small = fit_scores(NARROW, scores, ONES, 0.1)
    large = fit_scores(NARROW, 1_000 * scores, ONES, 0.1)
    np.testing.assert_allclose(large(NARROW), 1_000 * small(NARROW), rtol=1e-9)


def test_rows_in_the_basis_of_their_span_have_the_same_products() -> None:
    in_span = in_own_span(WIDE)
    assert in_span.shape == (NUM_ROWS, NUM_ROWS)
    np.testing.assert_allclose(in_span @ in_span.T, WIDE @ WIDE.T, atol=1e-9)


def test_rows_in_the_basis_of_their_span_give_the_same_answers() -> None:
    scores = (WIDE[:, :1] + WIDE[:, 1:2]).astype(np.float32)
    outputs = cross_validate(REGRESSION, in_own_span(WIDE), scores, ONES, 0.01)
    expected = cross_validate(REGRESSION, WIDE, scores, ONES, 0.01)
    np.testing.assert_allclose(outputs, expected, rtol=1e-6, atol=1e-9)


def test_rows_of_few_numbers_stay_as_they_are() -> None:
    assert in_own_span(NARROW) is NARROW


# ---- the folds -----------------------------------------------------------------------


@pytest.mark.parametrize("period", [2, 3, 5, 10])
def test_every_fold_has_each_label_even_if_labels_take_turns(period: int) -> None:
    labels = np.arange(NUM_ROWS)[:, None] % period
    folds = draw_folds(labels)
    assert np.bincount(folds).tolist() == [NUM_ROWS // NUM_FOLDS] * NUM_FOLDS
    for label in range(period):
        numbers = np.bincount(folds[labels[:, 0] == label], minlength=NUM_FOLDS)
        assert numbers.max() - numbers.min() <= 1


def test_folds_are_drawn_among_rows_with_the_same_marks() -> None:
    marks = np.tile([[0, 1], [1, 1], [0, 1], [1, 0], [0, 0]], (NUM_ROWS // 5, 1))
    folds = draw_folds(marks)
    assert (folds == draw_folds(marks)).all()
    both = folds[(marks == 1).all(1)]
    assert set(both) == set(range(NUM_FOLDS))
    assert set(folds[:NUM_FOLDS]) != set(range(NUM_FOLDS))  # not by their places


def test_fewer_rows_than_folds_have_a_fold_each() -> None:
    assert sorted(draw_folds(np.array([[1.0], [2.0], [1.0]]))) == [0, 1, 2]


# ---- the strength --------------------------------------------------------------------

CLEAR = (3 * WIDE[:, :1]).astype(np.float32)
NOISE = drawn(3, 1).astype(np.float32)


def test_the_strength_is_the_best_on_rows_that_were_not_fitted() -> None:
    losses = {}
    for strength in STRENGTHS:
        outputs = cross_validate(REGRESSION, WIDE, CLEAR, ONES, strength)
        losses[strength] = np.square(outputs - CLEAR).mean()
    best = min(losses, key=lambda strength: losses[strength])
    assert best != STRENGTHS[0]
    assert choose_strength(REGRESSION, WIDE, CLEAR, ONES) == best


def test_noise_is_fitted_as_weakly_as_possible() -> None:
    assert choose_strength(REGRESSION, WIDE, NOISE, ONES) == STRENGTHS[0]


def test_noise_is_not_predicted_on_rows_that_were_not_fitted() -> None:
    outputs = cross_validate(REGRESSION, WIDE, NOISE, ONES, STRENGTHS[0])
    assert outputs.shape == (NUM_ROWS, 1)
    correlation = np.corrcoef(outputs[:, 0], NOISE[:, 0])[0, 1]
    assert abs(correlation) < 0.5


# ---- the loss of similarity ----------------------------------------------------------

SIMILARITY = Similarity(HeadConfig(kind="text-vectors"))


def drawn_vectors(num_pairs: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2 * num_pairs, 6, generator=generator, requires_grad=True)


def test_the_loss_of_similarity_is_one_minus_the_correlation_of_a_batch() -> None:
    cosines = SIMILARITY.by_example(drawn_vectors(4))
    scores = torch.tensor([2.0, 0.0, 2.0, 5.0])
    correlation = np.corrcoef(cosines.detach()[:, 0], scores)[0, 1]
    losses = SIMILARITY.losses_of(cosines, scores)
    assert losses.tolist() == pytest.approx([1 - correlation] * 4, rel=1e-4)


def test_neither_the_scale_nor_the_mean_of_scores_matters() -> None:
    cosines = SIMILARITY.by_example(drawn_vectors(4))
    scores = torch.tensor([2.0, 0.0, 2.0, 5.0])
    losses = SIMILARITY.losses_of(cosines, scores)
    scaled = SIMILARITY.losses_of(cosines, 100 * scores - 7)
    torch.testing.assert_close(scaled, losses, rtol=1e-4, atol=0)


@pytest.mark.parametrize("scores", [[1.0], [3.0, 3.0, 3.0]])
def test_equal_scores_teach_vectors_nothing(scores: list[float]) -> None:
    vectors = drawn_vectors(len(scores))
    losses = SIMILARITY.losses_of(SIMILARITY.by_example(vectors), torch.tensor(scores))
    assert losses.tolist() == [1.0] * len(scores)
    losses.sum().backward()
    assert vectors.grad is not None
    assert not vectors.grad.any()
