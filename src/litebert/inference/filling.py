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
Combination: TypeAlias = tuple[tuple[int, ...], float]
"""A piece for each blank of a text, with the product of their probabilities."""
# The probabilities of all pieces are in memory for so many blanks: 30 MB with 30,000
# pieces.
BLANKS_AT_ONCE = 256


def fill_texts(
    network: Any, tokenizer: Tokenizer, texts: Sequence[str], top: int
) -> list[Results[Filling]]:
    """Return the `top` likeliest fillings of each text, best first."""
    longest = network.config.max_position_embeddings - 2  # [CLS] and [SEP] are added
    ids_of_texts = list[list[int]]()
    all_ids = inputs.encode_blanks(tokenizer, texts)
    for text, ids in zip(texts, all_ids, strict=True):
        ids_of_texts.append(_window_of_blanks(tokenizer, text, ids, longest))

    fillings: list[Results[Filling]] = [Results()] * len(texts)
    for rows, batch in inputs.frame_batches(network, tokenizer, ids_of_texts):
        num_blanks = [ids_of_texts[row].count(tokenizer.mask_id) for row in rows]
        likely = likely_pieces(network, tokenizer, batch, sum(num_blanks), top)
        # The blanks of a batch are in the order of its rows.
        remaining = iter(likely)
        for row, number in zip(rows, num_blanks, strict=True):
            blanks = list(islice(remaining, number))
            of_text = list[Filling]()
            for pieces, probability in best_combinations(blanks, top):
                of_text.append(_filling(tokenizer, texts[row], pieces, probability))
            fillings[row] = Results(of_text)
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
    table = network.albert.embedding.word.weight  # (rows, embed)
    # A word can be spelt by two pieces, the one that begins a word and the one that
    # continues it ("▁he" and "he"): their probabilities are added. Special pieces and a
    # lone "▁" are not words.
    first_alike = device.copy(torch.from_numpy(tokenizer.first_alike))  # (vocab,)
    no_words = [*tokenizer.special_ids, *tokenizer.textless_ids]

    likely = list[Likely]()
    for part in hidden.split(BLANKS_AT_ONCE):
        logits = network.masked_lm(part, table)  # (blanks, rows)
        # Some models have more rows than pieces, for speed.
        logits = logits[:, : tokenizer.vocab_size].float()  # (blanks, vocab)
        logits[:, no_words] = -torch.inf
        by_piece = logits.softmax(-1)
        by_word = torch.zeros_like(by_piece).index_add_(1, first_alike, by_piece)
        best = by_word.topk(min(top, tokenizer.vocab_size))  # (blanks, top)
        ids_of_blanks = best.indices.tolist()
        chances_of_blanks = best.values.tolist()
        for ids, chances in zip(ids_of_blanks, chances_of_blanks, strict=True):
            pairs = zip(ids, chances, strict=True)
            likely.append([(id_, chance) for id_, chance in pairs if chance > 0])
    return likely


def best_combinations(blanks: Sequence[Likely], top: int) -> list[Combination]:
    """Return the `top` likeliest choices of a piece for each blank.

    Blanks are independent, so the best combinations extend the best shorter ones. If
    the i-th shorter one takes the j-th piece, i x j - 1 combinations are better, so j
    ends at top / i.

    >>> best_combinations([[(7, 0.6), (8, 0.4)], [(9, 1.0)]], 5)
    [((7, 9), 0.6), ((8, 9), 0.4)]
    """
    best: list[Combination] = [((), 1.0)]
    for blank in blanks:
        longer = list[Combination]()
        for number, (pieces, probability) in enumerate(best, start=1):
            most = top // number
            for piece, chance in blank[:most]:
                longer.append(((*pieces, piece), probability * chance))
        longer.sort(key=_probability_of, reverse=True)
        best = longer[:top]
    return best


def _probability_of(combination: Combination) -> float:
    _, probability = combination
    return probability


def _filling(
    tokenizer: Tokenizer, text: str, pieces: Sequence[int], probability: float
) -> Filling:
    """Return a text with these pieces in its blanks."""
    before, *after = text.split(MASK)
    filled = before
    for piece, following in zip(pieces, after, strict=True):
        letters = tokenizer.texts[piece].strip()  # "seen" for the piece "##seen"
        filled += letters + following
    words = tuple(tokenizer.decode([piece]) for piece in pieces)
    blanks = re.finditer(re.escape(MASK), text)
    places = tuple(blank.span() for blank in blanks)
    return Filling(filled, words, probability, places)
