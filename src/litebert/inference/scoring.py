"""How likely texts are: pseudo-log-likelihoods (Salazar et al. 2020)."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch

from litebert.answers import Score, WordScore
from litebert.device import device_of
from litebert.inference import inputs
from litebert.nn import Batch
from litebert.tokenizer import Encoding, Tokenizer

# copies of texts, each with one piece masked, in memory at once: 20 MB
COPIES_AT_ONCE = 4_096


def score_texts(
    network: Any, tokenizer: Tokenizer, texts: Sequence[str]
) -> list[Score]:
    """Return the score of each text: every piece is masked in turn and predicted from
    the others.
    """
    longest = network.config.max_position_embeddings - 2  # [CLS] and [SEP] are added
    encodings = [tokenizer.encode(text) for text in texts]
    # the log-probability of each piece, text by text
    values = [[0.0] * len(encoding.ids) for encoding in encodings]
    copies = _masked_copies(encodings, longest, tokenizer.mask_id)
    while group := list(islice(copies, COPIES_AT_ONCE)):
        ids_of_copies = [copy.ids for copy in group]
        for numbers, batch in inputs.frame_batches(network, tokenizer, ids_of_copies):
            read = [group[number] for number in numbers]
            masked_ids = [copy.masked_id for copy in read]
            predicted = _predict(network, tokenizer, batch, masked_ids)
            for copy, value in zip(read, predicted, strict=True):
                values[copy.text][copy.place] = value
    scores = list[Score]()
    for text, encoding, of_pieces in zip(texts, encodings, values, strict=True):
        scores.append(_score(text, encoding.offsets, of_pieces))
    return scores


class _Copy(NamedTuple):
    """A copy of a text, or of the part of it that fits, with one piece masked."""

    text: int  # its number
    place: int  # of the masked piece in the whole text
    masked_id: int
    ids: list[int]


def _masked_copies(
    encodings: Sequence[Encoding], longest: int, mask_id: int
) -> Iterator[_Copy]:
    """Yield a copy for every piece of every text."""
    for number, encoding in enumerate(encodings):
        for place, masked_id in enumerate(encoding.ids):
            span = inputs.window([place], len(encoding.ids), longest)
            ids = encoding.ids[span]
            ids[place - span.start] = mask_id
            yield _Copy(number, place, masked_id, ids)


@torch.inference_mode()
def _predict(
    network: Any, tokenizer: Tokenizer, batch: Batch, masked_ids: list[int]
) -> list[float]:
    """Return the log-probability of what each sequence has at its only [MASK]."""
    device = device_of(network)
    places = device.indices(batch.ids == tokenizer.mask_id, len(masked_ids))
    hidden = network.albert(batch, places)  # (copies, hidden)
    table = network.albert.embedding.word.weight
    logits = network.masked_lm(hidden, table).float()  # (copies, vocab)
    labels = device.copy(torch.tensor(masked_ids))
    picked = logits.log_softmax(-1).gather(-1, labels[:, None])
    values: list[float] = picked.flatten().tolist()
    return values


def _score(
    text: str, offsets: Sequence[tuple[int, int]], values: Sequence[float]
) -> Score:
    total = math.fsum(values)
    perplexity = math.exp(min(700.0, -total / max(1, len(values))))  # per piece
    words = list[WordScore]()
    for word in inputs.sum_by_word(text, offsets, values):
        spelling = text[word.start : word.end]
        words.append(WordScore(spelling, word.start, word.end, word.value))
    return Score(text, total, perplexity, tuple(words))
