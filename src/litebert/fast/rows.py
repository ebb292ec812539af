"""Round the rows of ragged batches up to few different counts."""

from __future__ import annotations

from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F

from litebert.nn.attention import Attend
from litebert.nn.batch import Layout
from litebert.nn.block import AttentionPieces, Half, attention_block


def rounded(rows: int) -> int:
    """Round up to one of at most 16 counts per power of two, so at most 1/16 more rows.

    Matrix kernels are compiled or chosen for every shape, and a ragged batch has a new shape in
    every step: on a CPU in bf16, a first product takes about five times as long as the next ones.

    >>> rounded(16), rounded(100), rounded(4_001)
    (16, 100, 4096)
    """
    step = 1 << max(0, (rows // 16).bit_length() - 1)
    return -(-rows // step) * step


def filled(values: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "more_rows ..."]:
    """Append zero rows up to the rounded count; they belong to no sequence."""
    missing = rounded(len(values)) - len(values)
    return F.pad(values, (0, 0) * (values.ndim - 1) + (0, missing)) if missing else values


def linear_on_filled(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b, computed on filled rows."""
    return F.linear(filled(x), weight, bias)[: len(x)]


def on_batch(pieces: AttentionPieces, attend: Attend, dropout_prob: float = 0.0) -> Half:
    """Return an attention block for the rows of a ragged batch, which it fills up with zeros."""

    def apply(x: Tensor, layout: Layout) -> Tensor:
        num_tokens = len(layout.batch.ids)
        num_queries = num_tokens if layout.queries is None else len(layout.queries)

        def on_tokens(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            if len(query) > num_queries:
                query = query[:num_queries]
            if len(key) > num_tokens:
                key, value = key[:num_tokens], value[:num_tokens]
            return filled(attend(query, key, value, layout, dropout_prob))

        def of_queries(rows: Tensor) -> Tensor:
            return rows if layout.queries is None else filled(layout.of_queries(rows))

        return attention_block(filled(x), pieces, on_tokens, of_queries)

    return apply
