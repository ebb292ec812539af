"""Filling blanks: the likeliest pieces of each blank, and the best combinations."""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any, TypeAlias

import torch

from litebert.answers import Filling, Results
from litebert.device import device_of
from litebert.errors import LitebertError
from litebert.inference import inputs
from litebert.inference.inputs import MASK
from litebert.nn import Batch
from litebert.plugins import VERBS
from litebert.tokenizer import Tokenizer

Likely: TypeAlias = list[tuple[int, float]]
"""Pieces for a blank with their probabilities, best first."""
# blanks for which the probabilities of all pieces are in memory: 30 MB with 30,000
# pieces
BLANKS_AT_ONCE = 256


def fill_texts(
    network: Any, tokenizer: Tokenizer, texts: Sequence[str], top: int
) -> list[Results[Filling]]:
    """Return the `top` likeliest fillings of each text, best first."""
    longest = network.config.max_position_embeddings - 2  # [CLS] and [SEP] are added
    encoded = list[list[int]]()
    ids_of_texts = inputs.encode_blanks(tokenizer, texts)
    for text, ids in zip(texts, ids_of_texts, strict=True):
        encoded.append(_window_of_blanks(tokenizer, text, ids, longest))
    fillings: list[Results[Filling]] = [Results()] * len(texts)
    for rows, batch in inputs.frame_batches(network, tokenizer, encoded):
        num_blanks = [encoded[row].count(tokenizer.mask_id) for row in rows]
        # the blanks of a batch are in the order of its rows
        likely = likely_pieces(network, tokenizer, batch, sum(num_blanks), top)
        remaining = iter(likely)
        for row, number in zip(rows, num_blanks, strict=True):
            blanks = list(islice(remaining, number))
            filled = list[Filling]()
            for pieces, probability in best_combinations(blanks, top):
                filled.append(_filling(tokenizer, texts[row], pieces, probability))
            fillings[row] = Results(filled)
    return fillings


def _window_of_blanks(
    tokenizer: Tokenizer, text: str, ids: list[int], longest: int
) -> list[int]:
    """Return the ids of a text, or of the part around its blanks if it is too long."""
    blanks = [place for place, id_ in enumerate(ids) if id_ == tokenizer.mask_id]
    if not blanks:
        raise LitebertError(
            "LB-610",
            "there is no [MASK] in this text",
            received=text,
            next=f"litebert {VERBS['fill'].in_shell}",
        )
    if len(ids) <= longest:
        return ids
    return ids[inputs.window(blanks, len(ids), longest)]


@torch.inference_mode()
def likely_pieces(
    network: Any, tokenizer: Tokenizer, batch: Batch, num_blanks: int, top: int
) -> list[Likely]:
    """Return the `top` likeliest pieces of each blank in a batch."""
    device = device_of(network)
    places = device.indices(batch.ids == tokenizer.mask_id, num_blanks)
    hidden = network.albert(batch, places)  # (blanks, hidden)
    table = network.albert.embedding.word.weight
    alike = device.copy(torch.from_numpy(tokenizer.first_alike))  # (vocab,)
    no_words = [*tokenizer.special_ids, *tokenizer.textless_ids]
    likely = list[Likely]()
    for part in hidden.split(BLANKS_AT_ONCE):
        # (blanks, vocab): some models have more rows than pieces, for speed
        logits = network.masked_lm(part, table)[:, : tokenizer.vocab_size].float()
        # A word can be spelt by two pieces, the one that begins a word and the one that
        # continues it ("▁he" and "he"): their probabilities are added. Special pieces
        # and a lone "▁" are not words.
        logits[:, no_words] = -torch.inf
        chances = torch.zeros_like(logits).index_add_(1, alike, logits.softmax(-1))
        best = chances.topk(min(top, logits.shape[1]))
        ids_of_blanks = best.indices.tolist()
        chances_of_blanks = best.values.tolist()
        for ids, values in zip(ids_of_blanks, chances_of_blanks, strict=True):
            pairs = zip(ids, values, strict=True)
            likely.append([(id_, chance) for id_, chance in pairs if chance > 0])
    return likely


def best_combinations(
    blanks: Sequence[Likely], top: int
) -> list[tuple[tuple[int, ...], float]]:
    """Return the `top` likeliest choices of a piece for each blank.

    Blanks are independent, so the best combinations extend the best shorter ones. If
    the i-th shorter one takes the j-th piece, i x j - 1 combinations are better, so j
    ends at top / i.

    >>> best_combinations([[(7, 0.6), (8, 0.4)], [(9, 1.0)]], 5)
    [((7, 9), 0.6), ((8, 9), 0.4)]
    """
    best: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    for blank in blanks:
        longer = []
        for number, (pieces, probability) in enumerate(best, start=1):
            for piece, chance in blank[: top // number]:
                longer.append(((*pieces, piece), probability * chance))
        best = sorted(longer, key=lambda combination: -combination[1])[:top]
    return best


def _filling(
    tokenizer: Tokenizer, text: str, pieces: Sequence[int], probability: float
) -> Filling:
    """Return a text with these pieces in its blanks."""
    before, *after = text.split(MASK)
    filled = before
    for piece, following in zip(pieces, after, strict=True):
        # "seen" for the piece "##seen"
        filled += tokenizer.texts[piece].strip() + following
    words = tuple(tokenizer.decode([piece]) for piece in pieces)
    places = tuple(place.span() for place in re.finditer(re.escape(MASK), text))
    return Filling(filled, words, probability, places)
