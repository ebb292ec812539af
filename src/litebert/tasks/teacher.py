"""A teacher: a pretrained encoder that reads the text of a batch and returns hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.errors import LitebertError
from litebert.fast.steps import exact_dtype
from litebert.folder import Pooling, SentenceVectors, load_model, read_sentence_vectors
from litebert.nn import Albert, Batch
from litebert.nn.batch import mean_by_sequence, moved
from litebert.rng import Ints
from litebert.tokenizer import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True)
class Alignment:
    """Which teacher tokens correspond to each student token: those from `first` to `stop`.

    Both have shape (tokens,) and index the teacher's tokens of the whole batch. If they are equal,
    a token has no counterpart ([SEP] between two sentences, a lone `▁`).
    """

    first: Ints
    stop: Ints

    def means(self, states: Tensor) -> Tensor:
        """Return the mean teacher state of each student token, zeros if it has no counterpart.

        `states` has shape (teacher tokens, hidden), the result (tokens, hidden).
        """
        first, stop = (moved(torch.from_numpy(x), states.device) for x in (self.first, self.stop))
        exact = exact_dtype(states.device)
        sums = torch.cat([states.new_zeros(1, states.shape[1]), states]).to(exact).cumsum(0)
        count = (stop - first).clamp(min=1)[:, None]
        return ((sums[stop] - sums[first]) / count).float()

    @property
    def has_target(self) -> NDArray[np.bool_]:
        """Which student tokens have a teacher state, shape (tokens,)."""
        return self.stop > self.first


@dataclass(frozen=True)
class Reading:
    """The teacher's output for a batch: its hidden states and one vector per text.

    `states` are those of the requested layers, each (teacher tokens, teacher hidden); `vectors`
    (texts, teacher hidden) are pooled as the teacher's folder says, by default to the mean.
    """

    states: tuple[Tensor, ...]
    vectors: Tensor


class Teacher:
    """An encoder with its own tokenizer; it reads plain text and never learns."""

    def __init__(self, encoder: Albert, tokenizer: Tokenizer, *, pooling: Pooling = "mean") -> None:
        self.encoder, self.tokenizer, self.pooling = encoder.eval(), tokenizer, pooling

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype) -> Teacher:
        """Read a model folder; a sentence-transformers folder also defines the pooling.

        Raises:
            LitebertError: LB-990, its pooling is not supported.
        """
        vectors = read_sentence_vectors(folder) or SentenceVectors()
        if vectors.pooling not in ("mean", "cls"):
            raise LitebertError(
                "LB-990",
                f"{folder} has a pooling that distillation does not support",
                received=f"pooling {vectors.pooling}",
                expected="mean or cls",
                next="choose another teacher",
            )
        network = load_model(folder, dtype=dtype, for_inference=True).network
        return cls(network.albert, Tokenizer.load(folder), pooling=vectors.pooling)

    @property
    def num_layers(self) -> int:
        """The number of hidden states after the embeddings."""
        return len(self.encoder.plan)

    def encode(self, texts: Sequence[str]) -> tuple[Batch, list[list[Span]]]:
        """Return the framed batch of texts, and each token's span; [CLS] and [SEP] have (0, 0)."""
        longest = self.encoder.config.max_position_embeddings - 2
        ids, spans = [], []
        for text in texts:
            encoded = self.tokenizer.encode(text)
            ids.append([self.tokenizer.cls_id, *encoded.ids[:longest], self.tokenizer.sep_id])
            spans.append([(0, 0), *encoded.offsets[:longest], (0, 0)])
        return Batch.from_lists(ids), spans

    @torch.no_grad()
    def read(self, batch: Batch, layers: Sequence[int]) -> Reading:
        """Return the states after the given layers (0: the embeddings) and the pooled vectors."""
        states = list(self.encoder.states(batch))
        vectors = pool(states[-1].float(), batch, self.pooling)
        return Reading(tuple(states[layer] for layer in layers), vectors)


def pool(hidden: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """Return one vector per sequence: the mean of its states, or the state of its [CLS].

    `hidden` has shape (tokens, hidden), the result (sequences, hidden).
    """
    if pooling == "cls":
        return hidden[batch.first_tokens]
    return mean_by_sequence(hidden, batch)


def align(student: Sequence[Sequence[Span]], teacher: Sequence[Sequence[Span]]) -> Alignment:
    """Align two tokenizations of the same texts by characters.

    The first and the last span of a text are [CLS] and the final [SEP], which correspond to each
    other. Other empty spans have no counterpart.

    >>> alignment = align([[(0, 0), (0, 3), (0, 0)]], [[(0, 0), (0, 2), (2, 3), (0, 0)]])
    >>> alignment.first.tolist(), alignment.stop.tolist()
    ([0, 1, 3], [1, 3, 4])
    """
    first, stop, row = [], [], 0
    for ours, theirs in zip(student, teacher, strict=True):
        starts = np.array([begin for begin, _ in theirs[1:-1]])
        ends = np.array([end for _, end in theirs[1:-1]])
        begin, end = np.array(ours).T
        # Teacher tokens that overlap ours: they end after its begin and begin before its end.
        low = row + 1 + np.searchsorted(ends, begin, side="right")
        high = row + 1 + np.searchsorted(starts, end, side="left")
        is_empty = begin == end
        low[is_empty], high[is_empty] = 0, 0
        low[0], high[0] = row, row + 1  # [CLS]
        row += len(theirs)
        low[-1], high[-1] = row - 1, row  # the last [SEP]
        first.append(low)
        stop.append(np.maximum(low, high))
    return Alignment(np.concatenate(first), np.concatenate(stop))
