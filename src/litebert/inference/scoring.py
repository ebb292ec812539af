"""How likely a text is: the pseudo-log-likelihood of its words (Salazar et al. 2020)."""

from __future__ import annotations

import math

import torch

from litebert.answers import Score, WordScore
from litebert.inference.given import require_bounded
from litebert.inference.pretrained import framed, masked_logits, window
from litebert.inference.traced import by_word
from litebert.nn import AlbertForPretraining
from litebert.tasks.finetuning import by_length
from litebert.tokenizer import Tokenizer


@torch.inference_mode()
def score(network: AlbertForPretraining, tokenizer: Tokenizer, text: str) -> Score:
    """Mask each piece in turn and sum the log-probabilities of the masked pieces, in nats.

    The masked copies of the text are computed in ragged batches of bounded size. In a text longer
    than the model reads, the part around each piece is read.

    Raises:
        LitebertError: LB-935, the text is too long.
    """
    require_bounded(text, "score")
    encoding = tokenizer.encode(text)
    ids, room = encoding.ids, network.config.max_position_embeddings - 2
    found = [0.0] * len(ids)
    spans = [window([place], len(ids), room) for place in range(len(ids))]
    for places in by_length([min(len(ids), room) + 2] * len(ids)):
        copies = [
            [tokenizer.mask_id if at == place else ids[at] for at in _range(spans[place], len(ids))] for place in places
        ]
        batch = framed(network, tokenizer, copies)
        # [CLS] is before the pieces of each copy.
        masked = torch.tensor([1 + place - spans[place].start for place in places])
        positions = batch.offsets[:-1] + masked.to(batch.offsets.device)
        log_probabilities = masked_logits(network, batch, positions).log_softmax(-1)
        for row, place in enumerate(places):
            found[place] = float(log_probabilities[row, ids[place]])
    total = math.fsum(found)
    perplexity = math.exp(min(700.0, -total / max(1, len(ids))))
    words = tuple(WordScore(*each) for each in by_word(text, encoding.offsets, found))
    return Score(text, total, perplexity, words)


def _range(span: slice, size: int) -> range:
    return range(span.start, min(span.stop, size))
