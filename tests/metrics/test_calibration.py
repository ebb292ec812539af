"""Calibration: bins of confidence, and the distance between confidence and accuracy."""

import numpy as np
import pytest

from litebert.metrics import calibration


def test_answers_as_often_right_as_they_claim_have_no_error() -> None:
    labels = np.array([0] * 3 + [1])
    assert calibration(labels, np.array([[0.75, 0.25]] * 4)).error == 0.0


def test_the_error_is_the_mean_distance_weighted_by_answers() -> None:
    labels = np.array([0, 0, 1, 1])
    probabilities = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.4, 0.6]])
    measured = calibration(labels, probabilities)
    assert measured.error == pytest.approx((3 * (1 - 2 / 3) + 1 * (1 - 0.6)) / 4)
    assert [(part.count, part.accuracy) for part in measured.bins] == [(1, 1.0), (3, 2 / 3)]


@pytest.mark.parametrize("confidence", [0.5, 2 / 3, 0.9999, 1.0])
def test_a_confidence_lies_in_its_bin(confidence: float) -> None:
    (part,) = calibration(np.array([0]), np.array([[confidence, 1 - confidence]])).bins
    assert part.low < confidence <= part.high
