"""Which rows of a training file are held out, if no others are evaluated on."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from litebert import rng


def draw_held_out(groups: Sequence[tuple[str, str]], share: float) -> NDArray[np.bool_]:
    """Draw a share of the rows, given (key, stratum) of each: the same share of each
    stratum, and at least one key. Returns whether each row is held out: (rows,)

    Equal keys are drawn together unless all keys are equal; if their strata differ, the
    first by name counts. A key with so many rows that the share would be missed by more
    with it than without it is not drawn. The order of rows does not matter.
    """
    keys = _keys_of(groups)
    strata = [stratum for _, stratum in groups]
    stratum_of = _strata_of_keys(keys, strata)
    sizes = Counter(keys)
    draws = _draw(list(stratum_of))
    by_stratum = sorted(draws, key=lambda key: (stratum_of[key], draws[key]))

    # Of the keys sorted by stratum, evenly spaced ones come first, so that each stratum
    # gives its share; the others follow, and are drawn if some of the first have too
    # many rows.
    spaced = _evenly_spaced(by_stratum, share)
    order = sorted(by_stratum, key=lambda key: (key not in spaced, draws[key]))
    chosen = _choose(order, spaced, sizes, num_wanted=share * len(groups))
    if not chosen:  # each key has too many rows
        smallest = min(order, key=sizes.__getitem__)
        chosen.add(smallest)
    if len(chosen) == len(order):  # something must be left to learn from
        largest = max(order, key=sizes.__getitem__)
        chosen.remove(largest)
    return np.array([key in chosen for key in keys], dtype=np.bool_)


def _keys_of(groups: Sequence[tuple[str, str]]) -> list[str]:
    """Return the key of each row; if all keys are equal, the number of the row, so that
    rows are drawn one by one.
    """
    keys = [key for key, _ in groups]
    if len(set(keys)) > 1:
        return keys
    return [str(number) for number in range(len(keys))]


def _strata_of_keys(keys: Sequence[str], strata: Sequence[str]) -> dict[str, str]:
    """Return the stratum of each key, the first by name if it has several; the keys are
    sorted, so that ties between them do not depend on the order of rows.
    """
    stratum_of = dict[str, str]()
    for key, stratum in sorted(zip(keys, strata, strict=True), reverse=True):
        stratum_of[key] = stratum  # the last one is the first by name
    return stratum_of


def _draw(keys: Sequence[str]) -> dict[str, np.uint64]:
    """Return random bits for each key, which depend on its text alone."""
    numbers = np.array([rng.hash_text(key) for key in keys], dtype=np.int64)  # (keys,)
    bits = rng.random_bits(0, "held-out rows", numbers)
    return dict(zip(keys, bits, strict=True))


def _evenly_spaced(keys: Sequence[str], share: float) -> set[str]:
    """Return a share of the keys, at least one: the middle one of each of as many equal
    parts.
    """
    number = max(1, round(share * len(keys)))
    middles = (np.arange(number) + 0.5) * len(keys) / number
    return {keys[int(middle)] for middle in middles}


def _choose(
    order: Sequence[str],
    spaced: Collection[str],
    sizes: Mapping[str, int],
    num_wanted: float,
) -> set[str]:
    """Choose each key whose rows bring their sum nearer to `num_wanted`; if they bring
    it as near as before, only one that is evenly spaced.
    """
    chosen = set[str]()
    num_lacking = num_wanted
    for key in order:
        # With the key, |num_lacking - size| rows are lacking or too many. These are
        # fewer than num_lacking if half of its size is.
        half = sizes[key] / 2
        is_nearer = half < num_lacking
        is_as_near = half == num_lacking
        if is_nearer or (is_as_near and key in spaced):
            chosen.add(key)
            num_lacking -= sizes[key]
    return chosen
