"""Integrated gradients (Sundararajan et al. 2017): what each token adds to a score."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from litebert.errors import LitebertError, missing_package
from litebert.fast import is_int8
from litebert.inference.traced import Framed
from litebert.nn import Batch, Network

NUM_STEPS = 50
"""Points between the blank text and the text."""
_TOKENS_AT_ONCE = 4_096
ModuleT = TypeVar("ModuleT", bound=nn.Module)
ScoreOf: TypeAlias = Callable[[Network, Batch], Tensor]
"""(network, copies of the sequences end to end) -> the score of each copy."""


@dataclass(frozen=True)
class Attributed:
    """What each token adds to a score, for all sequences end to end.

    `score` is that of the text, `blank` that of the masked text; `values` add up to their
    difference plus `error`.
    """

    values: list[float]
    score: float
    blank: float
    error: float


def attributed(network: Network, sequences: Sequence[Framed], score: ScoreOf, *, mask_id: int) -> Attributed:
    """Integrate the gradient of the score from the text with every token masked to the text.

    Raises:
        LitebertError: LB-872, the weights have eight bits; LB-305, the extra [explain] is missing.
    """
    if is_int8(network.albert):
        raise LitebertError(
            "LB-872",
            "an eight-bit model has no gradients to explain its answers with",
            received="int8 weights",
            expected="float weights",
            next="use the float model that it was made from",
        )
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise missing_package("captum", extra="explain", needed_for="explain") from error
    device = next(network.parameters()).device
    ids = torch.tensor([token for one in sequences for token in one.ids], device=device)
    is_text = torch.tensor([each for one in sequences for each in one.is_text], device=device)
    table = network.albert.embedding.word.weight.detach()
    words = table[ids]  # (tokens, embed)
    blanks = torch.where(is_text[:, None], table[mask_id], words)

    def scores(vectors: Tensor) -> Tensor:
        copies = len(vectors)
        batch = Batch.from_lists([one.ids for one in sequences] * copies, [one.segments for one in sequences] * copies)
        return score(with_words(network, vectors.flatten(0, 1)), batch.to(device)).float()

    with torch.no_grad():
        whole, blank = scores(torch.stack([words, blanks])).tolist()
    with torch.enable_grad():
        values = IntegratedGradients(scores, multiply_by_inputs=True).attribute(
            words[None], blanks[None], n_steps=NUM_STEPS, internal_batch_size=max(1, _TOKENS_AT_ONCE // len(ids))
        )
    summed = values[0].sum(-1).double()  # (tokens,)
    return Attributed(summed.tolist(), whole, blank, float(summed.sum()) - (whole - blank))


def with_words(network: Network, vectors: Tensor) -> Network:
    """Return a copy of the network that reads `vectors` (tokens, embed); weights are shared."""
    albert = network.albert
    words = _Given(albert.embedding.word.weight, vectors)
    embedding = _replaced(albert.embedding, "word", words)
    return _replaced(network, "albert", _replaced(albert, "embedding", embedding))


class _Given(nn.Module):
    """An embedding table whose look-up returns given vectors."""

    def __init__(self, weight: Tensor, vectors: Tensor) -> None:
        super().__init__()
        self.weight, self._vectors = weight, vectors

    def forward(self, _: Tensor) -> Tensor:
        return self._vectors


def _replaced(module: ModuleT, name: str, part: nn.Module) -> ModuleT:
    """Return a shallow copy with one part replaced; threads share the original."""
    view = copy.copy(module)
    view._modules = {**module._modules, name: part}
    return view
