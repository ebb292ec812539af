"""Where a text breaks: the probability that each two neighbouring sentences are in order."""

from __future__ import annotations

from itertools import pairwise

import torch

from litebert.answers import Coherence, Join
from litebert.corpus.sentences import split_sentences
from litebert.corpus.settings import TextSettings
from litebert.errors import LitebertError
from litebert.inference.given import require_bounded
from litebert.inference.pretrained import framed
from litebert.nn import AlbertForPretraining
from litebert.tasks.finetuning import by_length
from litebert.tokenizer import Tokenizer


@torch.inference_mode()
def coherence(network: AlbertForPretraining, tokenizer: Tokenizer, text: str, *, language: str = "en") -> Coherence:
    """Return the probability that each two neighbouring sentences of a text are in order.

    Raises:
        LitebertError: LB-935, the text is too long; LB-936, it has one sentence, or none.
    """
    require_bounded(text, "order")
    sentences = list(split_sentences(text, TextSettings(language=language)))
    if len(sentences) < 2:
        raise LitebertError(
            "LB-936",
            "there is no order in one sentence",
            received=f"{len(sentences)} sentences",
            expected="a text of two sentences or more, or two texts",
            next='litebert order "He opened the door. Nobody was there." --model runs/mine',
        )
    ids = tokenizer.encode_ids(sentences)
    probabilities = [0.0] * (len(ids) - 1)
    for rows in by_length([len(a) + len(b) + 3 for a, b in pairwise(ids)]):
        batch = framed(network, tokenizer, [ids[row] for row in rows], [ids[r + 1] for r in rows])
        pooled = network.albert.pool(network.albert(batch, batch.first_tokens))
        found = network.sentence_order(pooled).float().softmax(-1)[:, 0]
        for row, value in zip(rows, found.tolist(), strict=True):
            probabilities[row] = value
    starts, end = [], 0
    for sentence in sentences:
        starts.append(text.index(sentence, end))
        end = starts[-1] + len(sentence)
    return Coherence(
        tuple(
            Join(sentences[at], sentences[at + 1], starts[at + 1], probability)
            for at, probability in enumerate(probabilities)
        )
    )
