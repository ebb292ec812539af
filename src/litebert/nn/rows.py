"""Few distinct row counts: matrix kernels are compiled or chosen anew for every shape.

On a CPU in bf16 the first product of a new shape takes about five times as long as the next ones,
and ragged batches bring a new shape every step. Rows past the last token belong to no sequence.
"""

from __future__ import annotations

from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F


def rounded(rows: int) -> int:
    """Round up to one of at most 16 counts an octave: at most 1/16 more rows.

    >>> rounded(16), rounded(100), rounded(4_001)
    (16, 100, 4096)
    """
    step = 1 << max(0, (rows // 16).bit_length() - 1)
    return -(-rows // step) * step


def filled(values: Shaped[Tensor, "rows columns"]) -> Shaped[Tensor, "more_rows columns"]:
    """Append zero rows up to the rounded count."""
    missing = rounded(len(values)) - len(values)
    return F.pad(values, (0, 0, 0, missing)) if missing else values
