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
    # The log-probability of each piece, text by text.
    values_of = [[0.0] * len(encoding.ids) for encoding in encodings]
    copies = _masked_copies(encodings, longest, tokenizer.mask_id)
    while group := list(islice(copies, COPIES_AT_ONCE)):
        ids_of_copies = [copy.ids for copy in group]
        for numbers, batch in inputs.frame_batches(network, tokenizer, ids_of_copies):
            copies_read = [group[number] for number in numbers]
            labels = [copy.masked_id for copy in copies_read]
            values = _log_probabilities(network, tokenizer, batch, labels)
            for copy, value in zip(copies_read, values, strict=True):
                values_of[copy.text][copy.place] = value

    scores = list[Score]()
    for text, encoding, values in zip(texts, encodings, values_of, strict=True):
        scores.append(_score(text, encoding.offsets, values))
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
def _log_probabilities(
    network: Any, tokenizer: Tokenizer, batch: Batch, labels: list[int]
) -> list[float]:
    """Return the log-probability of a piece at the only [MASK] of each sequence."""
    device = device_of(network)
    places = device.indices(batch.ids == tokenizer.mask_id, len(labels))
    hidden = network.albert(batch, places)  # (copies, hidden)
    table = network.albert.embedding.word.weight  # (vocab, embed)
    logits = network.masked_lm(hidden, table).float()  # (copies, vocab)
    log_probabilities = logits.log_softmax(-1)
    columns = device.copy(torch.tensor(labels)).unsqueeze(-1)  # (copies, 1)
    values: list[float] = log_probabilities.gather(-1, columns).flatten().tolist()
    return values


def _score(
    text: str, offsets: Sequence[tuple[int, int]], values: Sequence[float]
) -> Score:
    """Return the score of a text from the log-probabilities of its pieces."""
    total = math.fsum(values)
    mean_surprise = -total / max(1, len(values))  # nats per piece
    perplexity = math.exp(min(700.0, mean_surprise))  # exp(710) is infinite
    words = list[WordScore]()
    for word in inputs.sum_by_word(text, offsets, values):
        spelling = text[word.start : word.end]
        words.append(WordScore(spelling, word.start, word.end, word.value))
    return Score(text, total, perplexity, tuple(words))
