"""Heads that attend to neighbors from the start.

With small random weights, attention is close to uniform and adds about 1 % to the
residual, so that at small learning rates a network predicts only from piece frequencies
for millions of pieces. Heads that read the pieces next to a gap from the start shorten
that plateau (docs/choices.md).
"""

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import rng
from litebert.nn import Albert

# positions that the heads attend to: the piece before, the one after, and so on
OFFSETS = (-1, 1, -2, 2, -3, 3)
_MOST_FREQUENCIES = 32
# standard deviation of the position rows, relative to that of the word rows
_POSITION_STRENGTH = 1.2
_CUT_NORMAL_STD = 0.88  # of a unit normal that is truncated at two sigma, as in nn.init


@torch.no_grad()
def attend_locally(albert: Albert, *, seed: int) -> None:
    """Set positions, projection and some heads so that each of those heads attends to
    one offset.

    Position p is written as cos and sin of p w for jittered frequencies w, in a random
    subspace of E. The projection keeps lengths, so a reader B takes that subspace out
    of H. A head for offset d has W_k = B and W_q = R(d) B, where R turns each phase by
    d w: q_i k_j is largest at j = i + d.
    """
    config = albert.config
    draws = rng.stream(seed, "local-start", 0)
    num = min(_MOST_FREQUENCIES, config.head_size // 2, config.embedding_size // 2)
    # one in each of as many equal parts of 0 ... pi: (num,)
    frequencies = np.pi * (np.arange(num) + draws.random(num)) / num
    basis = _isometry(draws, config.embedding_size, config.embedding_size)  # (E, E)
    subspace = basis[: 2 * num]  # (2 num, E)
    _write_positions(albert, frequencies, subspace)

    reader = _reader_of(albert, subspace, draws)  # (2 num, H)
    num_local = num_local_heads(config.num_attention_heads)
    for head, offset in enumerate(OFFSETS[:num_local]):
        turned = _turn(frequencies, offset) @ reader
        first = head * config.head_size
        rows = slice(first, first + 2 * num)
        for block in albert.attention:
            block.key.weight[rows].copy_(torch.from_numpy(reader))
            block.query.weight[rows].copy_(torch.from_numpy(turned))


def _write_positions(
    albert: Albert, frequencies: NDArray[np.float64], subspace: NDArray[np.float64]
) -> None:
    """Set the position rows: cos and sin of each phase, in a subspace of E."""
    config = albert.config
    num = len(frequencies)
    positions = np.arange(config.max_position_embeddings)
    phases = np.outer(positions, frequencies)  # (positions, num)
    # (positions, 2 num), of squared length num
    waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    unit = waves @ subspace * (config.embedding_size / num) ** 0.5  # of variance 1
    std = _POSITION_STRENGTH * _CUT_NORMAL_STD * config.initializer_range
    rows = unit * std  # (positions, E)
    albert.embedding.position.weight.copy_(torch.from_numpy(rows))


def _turn(frequencies: NDArray[np.float64], offset: int) -> NDArray[np.float64]:
    """Return the matrix that moves waves by an offset, (2 num, 2 num): it rotates each
    pair (cos, sin) by its own angle.
    """
    cos = np.diag(np.cos(frequencies * offset))
    sin = np.diag(np.sin(frequencies * offset))
    return np.block([[cos, -sin], [sin, cos]])


def _reader_of(
    albert: Albert, subspace: NDArray[np.float64], draws: np.random.Generator
) -> NDArray[np.float64]:
    """Set the projection of the embeddings to one that keeps lengths; return what takes
    the subspace (2 num, E) out of a hidden vector, (2 num, H).
    """
    config = albert.config
    if not config.projects_embeddings:
        return subspace  # E = H
    isometry = _isometry(draws, config.hidden_size, config.embedding_size)  # (H, E)
    # a vector of E with unit variance becomes one of H with unit variance
    gain = (config.hidden_size / config.embedding_size) ** 0.5
    projection = albert.embedding.projection
    assert isinstance(projection, torch.nn.Linear)
    projection.weight.copy_(torch.from_numpy(isometry * gain))
    reader: NDArray[np.float64] = subspace @ isometry.T / gain
    return reader


def num_local_heads(num_heads: int) -> int:
    """Return how many heads start local: all but one or, of more than four heads, all
    but two.

    >>> [num_local_heads(n) for n in (1, 2, 4, 8, 12)]
    [0, 1, 3, 6, 6]
    """
    num_others = 1 if num_heads <= 4 else 2
    return min(len(OFFSETS), num_heads - num_others)


def _isometry(
    draws: np.random.Generator, rows: int, columns: int
) -> NDArray[np.float64]:
    """Draw a matrix with orthonormal columns or, if there are fewer rows, orthonormal
    rows.
    """
    normal = draws.standard_normal((max(rows, columns), min(rows, columns)))
    basis: NDArray[np.float64] = np.linalg.qr(normal)[0]
    return basis if rows >= columns else basis.T
