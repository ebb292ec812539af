"""Local attention: to neighbours up to `window` tokens away and [CLS]; [CLS] attends to all."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.fast.attention import full
from litebert.fast.moving import sequence_of
from litebert.nn.attention import Attend
from litebert.nn.batch import Layout

_SMALLEST_BLOCK = 32


def local_of(config: AlbertConfig) -> Attend:
    """Return local attention with the window of the configuration."""
    return partial(local, window=config.attention_window)


def local(
    query: Float[Tensor, "queries heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    layout: Layout,
    dropout_prob: float,
    *,
    window: int,
) -> Float[Tensor, "queries heads head_size"]:
    """Mix each query with its neighbours and the [CLS] of its sequence, and [CLS] with all tokens.

    Blocks of tokens read the blocks around them, so the cost per token is the same at any length.
    """
    everywhere = query
    if layout.queries is not None:
        everywhere = torch.zeros_like(key).index_copy(0, layout.queries, query)
    mixed = _in_blocks(everywhere, key, value, layout, dropout_prob, window)
    first = layout.batch.first_tokens
    to_all = full(everywhere[first], key, value, Layout(layout.batch, first), dropout_prob)
    mixed = mixed.index_copy(0, first, to_all)
    return mixed if layout.queries is None else mixed[layout.queries]


def _in_blocks(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout_prob: float, window: int) -> Tensor:
    size, num_tokens = max(window, _SMALLEST_BLOCK), len(key)
    missing = -num_tokens % size  # tokens that fill the last block
    first = layout.batch.first_tokens[sequence_of(layout.batch)]
    query = query * query.shape[-1] ** -0.5
    to_first = (query * key[first]).sum(-1)  # (tokens, heads): the score of each token's own [CLS]
    q = _blocks(F.pad(query, (0, 0, 0, 0, 0, missing)), size).transpose(1, 2)
    k, v = (
        F.pad(x, (0, 0, 0, 0, window, window + missing)).unfold(0, size + 2 * window, size) for x in (key, value)
    )  # (blocks, heads, head_size, span)
    is_near, is_far = _visible(first, size, window)
    near = (q @ k).masked_fill(~is_near[:, None], -torch.inf)  # (blocks, heads, size, span)
    far = _blocks(F.pad(to_first, (0, 0, 0, missing)), size).transpose(1, 2)[..., None]
    far = far.masked_fill(~is_far[:, None, :, None], -torch.inf)
    share = F.dropout(torch.cat([near, far], -1).softmax(-1), dropout_prob)
    mixed = (share[..., :-1] @ v.transpose(-1, -2)).transpose(1, 2).flatten(0, 1)[:num_tokens]
    of_first = share[..., -1].transpose(1, 2).flatten(0, 1)[:num_tokens]  # (tokens, heads)
    return mixed + of_first[..., None] * value[first]


def _blocks(rows: Tensor, size: int) -> Tensor:
    return rows.view(-1, size, *rows.shape[1:])


def _visible(
    first: Tensor, size: int, window: int
) -> tuple[Bool[Tensor, "blocks size span"], Bool[Tensor, "blocks size"]]:
    """Tell which neighbours each token attends to, and whether its [CLS] is not among them.

    `first` is the index of each token's [CLS]; tokens of the same sequence have the same.
    """
    missing = -len(first) % size
    own = _blocks(F.pad(first, (0, missing), value=-1), size)
    around = F.pad(first, (window, window + missing), value=-2).unfold(0, size + 2 * window, size)
    row, column = (torch.arange(n, device=first.device) for n in (size, size + 2 * window))
    is_in_band = (row[:, None] + window - column).abs() <= window
    place = torch.arange(own.numel(), device=first.device).view_as(own)
    return is_in_band & (around[:, None] == own[..., None]), place - own > window
