"""What the objectives know of a vocabulary: its size, three ids and which pieces start a word."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Vocabulary:
    """Hold the ids that frame and mask; `starts_word` (size,) marks pieces that begin a word.

    >>> starts = np.array([True, True, True, True, True, True, False])
    >>> Vocabulary(size=7, cls_id=2, sep_id=3, mask_id=4, starts_word=starts).size
    7
    """

    size: int
    cls_id: int
    sep_id: int
    mask_id: int
    starts_word: NDArray[np.bool_]

    def __post_init__(self) -> None:
        assert self.starts_word.shape == (self.size,), (self.starts_word.shape, self.size)
        assert max(self.cls_id, self.sep_id, self.mask_id) < self.size
