"""Initialise a network for pretraining from scratch with heads that attend to neighbours.

With small random weights, attention is close to uniform and adds about 1 % to the residual, so that
at small learning rates a network predicts from piece frequencies alone for millions of pieces.
Heads that read the pieces beside a gap from the start shorten that plateau (docs/choices.md).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert import rng
from litebert.fast.steps import blocks
from litebert.nn import Albert
from litebert.nn.model import AttentionBlock

OFFSETS = (-1, 1, -2, 2, -3, 3)
"""Relative positions that the heads attend to: the piece before, the one after, and so on."""
_MOST_FREQUENCIES = 32
_POSITION_STRENGTH = 1.2
"""Standard deviation of the position rows, relative to that of the word rows."""
_CUT_NORMAL_STD = 0.88
"""Standard deviation of a unit normal that is cut at two sigma, as in nn.init."""

Matrix = NDArray[np.float64]


@torch.no_grad()
def attend_locally(albert: Albert, *, seed: int) -> None:
    """Set positions, projection and some heads so that each of these attends to one offset.

    Position p is written as cos and sin of p w for jittered frequencies w, in a random subspace of
    E. The projection keeps lengths, so B reads that subspace out of H. A head for offset d has
    W_k = B and W_q = R(d) B, where R turns each phase by d w: q_i k_j is largest at j = i + d.
    """
    config = albert.config
    embedding_size, hidden_size = config.embedding_size, config.hidden_size
    draws = rng.stream(seed, "local-start", 0)
    num = min(_MOST_FREQUENCIES, config.head_size // 2, embedding_size // 2)
    frequencies = np.pi * (np.arange(num) + draws.random(num)) / num
    subspace = _isometry(draws, embedding_size, embedding_size)[: 2 * num]  # (2 num, E)
    phases = np.outer(np.arange(config.max_position_embeddings), frequencies)
    waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)  # rows of squared length num
    std = _POSITION_STRENGTH * _CUT_NORMAL_STD * config.initializer_range
    _set(albert.embedding.position.weight, waves @ subspace * (embedding_size / num) ** 0.5 * std)
    reader = subspace  # of a hidden vector, where E = H and nothing is projected
    if config.projects_embeddings:
        isometry = _isometry(draws, hidden_size, embedding_size)  # (H, E)
        assert isinstance(albert.embedding.projection, torch.nn.Linear)
        gain = (hidden_size / embedding_size) ** 0.5  # unit variance stays unit variance
        _set(albert.embedding.projection.weight, isometry * gain)
        reader = subspace @ isometry.T / gain
    for block in blocks(albert, AttentionBlock):
        for head, offset in enumerate(OFFSETS[: num_local_heads(config.num_attention_heads)]):
            rows = slice(head * config.head_size, head * config.head_size + 2 * num)
            _set(block.key.weight[rows], reader)
            _set(block.query.weight[rows], _rotation(frequencies * offset) @ reader)


def num_local_heads(num_heads: int) -> int:
    """Return how many heads start local: all but one or, of more than four heads, all but two.

    >>> [num_local_heads(n) for n in (1, 2, 4, 8, 12)]
    [0, 1, 3, 6, 6]
    """
    free = 1 if num_heads <= 4 else 2
    return min(len(OFFSETS), num_heads - free)


def _rotation(angles: NDArray[np.float64]) -> Matrix:
    """Return the matrix that turns each pair (cos, sin) by its angle."""
    cos, sin = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    return np.block([[cos, -sin], [sin, cos]])


def _isometry(draws: np.random.Generator, rows: int, columns: int) -> Matrix:
    """Draw a matrix with orthonormal columns, or rows where there are fewer of them."""
    normal = draws.standard_normal((max(rows, columns), min(rows, columns)))
    basis: Matrix = np.linalg.qr(normal)[0]
    return basis if rows >= columns else basis.T


def _set(target: Tensor, values: Matrix) -> None:
    target.copy_(torch.from_numpy(values))
