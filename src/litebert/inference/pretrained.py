"""The verbs of pretrained heads, on strings: fill the blanks, decide which sentence comes first."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from litebert.answers import Filling, Order, Results
from litebert.errors import LitebertError
from litebert.inference.given import require_bounded
from litebert.nn import AlbertForPretraining, Batch, Network
from litebert.tasks.kinds.family import frame_ids
from litebert.tokenizer import Tokenizer

MASK = "[MASK]"


@torch.inference_mode()
def fill(network: AlbertForPretraining, tokenizer: Tokenizer, text: str, *, top: int) -> Results[Filling]:
    """Return the `top` likeliest fillings of every [MASK] in a text, best first.

    A word's probability is the sum over the pieces that spell it: the one that begins a word and
    the one that continues it. In a text longer than the model reads, the part around the blanks
    is read.
    """
    require_bounded(text, "fill")
    (ids,) = tokenizer.encode_ids([text], special_tokens=True, num_threads=1)
    blanks = [place for place, id_ in enumerate(ids) if id_ == tokenizer.mask_id]
    if not blanks:
        raise LitebertError(
            "LB-610",
            "there is nothing to fill in this text",
            received=text,
            expected="at least one [MASK]",
            next='litebert fill "The cat sat on the [MASK]."',
        )
    ids = ids[window(blanks, len(ids), network.config.max_position_embeddings - 2)]
    batch = framed(network, tokenizer, [ids])
    positions = torch.nonzero(batch.ids == tokenizer.mask_id).flatten()
    logits = masked_logits(network, batch, positions)
    logits[:, tokenizer.special_ids] = -torch.inf
    alike = torch.from_numpy(tokenizer.first_alike)
    by_word = torch.zeros_like(logits).index_add_(1, alike, logits.softmax(-1))
    offsets = tuple(match.span() for match in re.finditer(re.escape(MASK), text))
    return Results(
        Filling(_filled(text, words, offsets), tuple(words), probability, offsets)
        for words, probability in _likeliest(tokenizer, by_word, top)
    )


def masked_logits(network: AlbertForPretraining, batch: Batch, positions: Tensor) -> Tensor:
    """Return the logits of every piece at some positions, shape (positions, vocab), float32."""
    hidden, table = network.albert(batch, positions), network.albert.embedding.word.weight
    logits: Tensor = network.masked_lm(hidden, table).float()
    return logits


def window(places: Sequence[int], size: int, room: int) -> slice:
    """Return which of `size` tokens to read: at most `room`, all `places` among them.

    Raises:
        LitebertError: LB-934, the places are too far apart.

    >>> window([700], 1000, 10)
    slice(695, 705, None)
    >>> window([2], 1000, 10)
    slice(0, 10, None)
    """
    first, last = min(places), max(places)
    if last - first >= room:
        raise LitebertError(
            "LB-934",
            "the blanks are too far apart",
            received=f"{last - first + 1:,} tokens from the first [MASK] to the last",
            expected=f"at most {room:,}, as many as the model reads at once",
            next="fill parts of the text one by one",
        )
    start = min(max(0, (first + last + 1) // 2 - room // 2), max(0, size - room))
    return slice(start, start + room)


@torch.inference_mode()
def order(network: AlbertForPretraining, tokenizer: Tokenizer, first: str, second: str) -> Order:
    """Say whether `first` comes before `second` in running text."""
    longest = network.config.max_position_embeddings
    a, b = tokenizer.encode_ids([tokenizer.beginning(text, longest) for text in (first, second)])
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


def _likeliest(tokenizer: Tokenizer, probabilities: Tensor, top: int) -> list[tuple[list[str], float]]:
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
        # Blanks are independent, so the best combinations extend the best shorter ones.
        beams = sorted(longer, key=lambda beam: -beam[1])[:top]
    return beams


def _filled(text: str, words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> str:
    """Put the words in place of the blanks."""
    parts, end = [], 0
    for word, (start, stop) in zip(words, offsets, strict=True):
        parts += [text[end:start], word]
        end = stop
    return "".join([*parts, text[end:]])
