"""How likely texts are: pseudo-log-likelihoods (Salazar et al. 2020)."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from litebert.answers import Score, WordScore
from litebert.device import device_of
from litebert.inference import inputs
from litebert.nn import Batch
from litebert.tokenizer import Tokenizer

# copies of texts, each with one piece masked, in memory at once: 20 MB
COPIES_AT_ONCE = 4_096


def score_texts(
    network: Any, tokenizer: Tokenizer, texts: Sequence[str]
) -> list[Score]:
    """Return the score of each text: every piece is masked in turn and predicted from
    the others.
    """
    encodings = [tokenizer.encode(text) for text in texts]
    ids_of = [encoding.ids for encoding in encodings]
    longest = network.config.max_position_embeddings - 2
    # the log-probability of each piece
    values = [[0.0] * len(ids) for ids in ids_of]
    places = _every_place(ids_of)
    while group := list(islice(places, COPIES_AT_ONCE)):
        copies = []
        for row, place in group:
            span = inputs.window([place], len(ids_of[row]), longest)
            masked = list(ids_of[row][span])
            masked[place - span.start] = tokenizer.mask_id
            copies.append(masked)
        for numbers, batch in inputs.frame_batches(network, tokenizer, copies):
            masked_out = [group[number] for number in numbers]
            hidden_ids = [ids_of[row][place] for row, place in masked_out]
            predicted = _predict(network, tokenizer, batch, hidden_ids)
            for (row, place), value in zip(masked_out, predicted, strict=True):
                values[row][place] = value
    scores = []
    for text, encoding, of_pieces in zip(texts, encodings, values, strict=True):
        scores.append(_score(text, encoding.offsets, of_pieces))
    return scores


def _every_place(rows: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the row and the place of every piece."""
    for row, ids in enumerate(rows):
        for place in range(len(ids)):
            yield row, place


@torch.inference_mode()
def _predict(
    network: Any, tokenizer: Tokenizer, batch: Batch, hidden_ids: list[int]
) -> list[float]:
    """Return the log-probability of what each sequence has at its only [MASK]."""
    device = device_of(network)
    places = device.indices(batch.ids == tokenizer.mask_id, len(hidden_ids))
    hidden = network.albert(batch, places)  # (copies, hidden)
    table = network.albert.embedding.word.weight
    logits = network.masked_lm(hidden, table).float()  # (copies, vocab)
    labels = device.copy(torch.tensor(hidden_ids))
    picked = logits.log_softmax(-1).gather(-1, labels[:, None])
    values: list[float] = picked.flatten().tolist()
    return values


def _score(
    text: str, offsets: Sequence[tuple[int, int]], values: Sequence[float]
) -> Score:
    total = math.fsum(values)
    perplexity = math.exp(min(700.0, -total / max(1, len(values))))  # per piece
    by_word = inputs.sum_by_word(text, offsets, values)
    words = tuple(WordScore(*word) for word in by_word)
    return Score(text, total, perplexity, words)
