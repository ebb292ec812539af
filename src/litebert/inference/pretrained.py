"""The verbs of pretrained heads, on strings: fill the blanks, tell which sentence comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.errors import LitebertError
from litebert.nn import AlbertForPretraining, Batch, Network
from litebert.tasks.kinds.framing import frame_ids
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class Filling:
    """One way to fill the blanks of a text."""

    text: str
    words: tuple[str, ...]
    probability: float


@dataclass(frozen=True)
class Order:
    """Which of two sentences comes first; `probability` is that of the order as given."""

    is_in_order: bool
    probability: float


@torch.inference_mode()
def fill(
    network: AlbertForPretraining, tokenizer: Tokenizer, text: str, *, top: int
) -> list[Filling]:
    """Return the `top` likeliest fillings of every [MASK] in a text, best first."""
    ids = tokenizer.encode(text, special_tokens=True, frame=False).ids
    if tokenizer.mask_id not in ids:
        raise LitebertError(
            "LB-610",
            "there is nothing to fill in this text",
            received=text,
            expected="at least one [MASK]",
            next='litebert fill "The cat sat on the [MASK]."',
        )
    batch = framed(network, tokenizer, [ids])
    positions = torch.nonzero(batch.ids == tokenizer.mask_id).flatten()
    hidden, table = network.albert(batch, positions), network.albert.embedding.word.weight
    logits = network.masked_lm(hidden, table).float()
    logits[:, _special_ids(tokenizer)] = -torch.inf
    return [
        Filling(_filled(text, words), tuple(words), probability)
        for words, probability in _likeliest(tokenizer, logits.softmax(-1), top)
    ]


@torch.inference_mode()
def order(network: AlbertForPretraining, tokenizer: Tokenizer, first: str, second: str) -> Order:
    """Say whether `first` comes before `second` in running text."""
    a, b = (tokenizer.encode(text).ids for text in (first, second))
    batch = framed(network, tokenizer, [a], [b])
    pooled = network.albert.pool(network.albert(batch, batch.first_tokens))
    probability = float(network.sentence_order(pooled).softmax(-1)[0, 0])
    return Order(probability >= 0.5, probability)


def framed(
    network: Network,
    tokenizer: Tokenizer,
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]] | None = None,
    *,
    longest: int | None = None,
) -> Batch:
    """Frame ids, cut to what the model can read (and to `longest`), on its device."""
    positions = network.config.max_position_embeddings
    longest = min(longest or positions, positions)
    pairs = zip(first, second if second is not None else [None] * len(first), strict=True)
    sequences = [frame_ids(tokenizer, a, b, max_length=longest) for a, b in pairs]
    batch = Batch.from_lists([ids for ids, _ in sequences], [types for _, types in sequences])
    return batch.to(next(network.parameters()).device)


def _likeliest(
    tokenizer: Tokenizer, probabilities: Tensor, top: int
) -> list[tuple[list[str], float]]:
    """Return the best combinations of words over all blanks."""
    beams: list[tuple[list[str], float]] = [([], 1.0)]
    for blank in probabilities:
        best = blank.topk(min(top, len(blank)))
        words = [tokenizer.decode([piece]) for piece in best.indices.tolist()]
        longer = [
            ([*chosen, word], so_far * p)
            for chosen, so_far in beams
            for word, p in zip(words, best.values.tolist(), strict=True)
            if p > 0
        ]
        beams = sorted(longer, key=lambda beam: -beam[1])[:top]
    return beams


def _special_ids(tokenizer: Tokenizer) -> list[int]:
    return [
        tokenizer.pad_id,
        tokenizer.unk_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
    ]


def _filled(text: str, words: Sequence[str]) -> str:
    for word in words:
        text = text.replace("[MASK]", word, 1)
    return text
