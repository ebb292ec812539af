"""The order of an epoch: a stateless shuffle that is a bijection for every length."""

from __future__ import annotations

import numpy as np

from litebert.rng import permutation


def test_every_length_up_to_2000_is_a_bijection() -> None:
    for length in range(2_001):
        order = permutation(1, "test", 0, length, np.arange(length))
        np.testing.assert_array_equal(np.sort(order), np.arange(length))


def test_a_billion_places_do_not_collide_and_seed_and_epoch_shuffle_anew() -> None:
    length = 10**9 + 7
    ends = np.concatenate([np.arange(50_000), np.arange(length - 50_000, length)])
    order = permutation(1, "test", 0, length, ends)
    assert 0 <= order.min() <= order.max() < length
    assert len(np.unique(order)) == len(ends)

    places = np.arange(10_000)
    order = permutation(1, "test", 0, 10_000, places)
    assert (order != permutation(2, "test", 0, 10_000, places)).mean() > 0.99
    assert (order != permutation(1, "test", 1, 10_000, places)).mean() > 0.99
    # 5 sigma of the correlation of independent numbers
    assert abs(np.corrcoef(places, order)[0, 1]) < 5 / np.sqrt(10_000)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 5 / np.sqrt(10_000)
