"""Masked texts, the same at every call, on which a study measures the masked-LM loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.errors import LitebertError
from litebert.inference.model import Model
from litebert.inference.pretrained import frame
from litebert.nn import AlbertForPretraining, Batch
from litebert.objectives import mask
from litebert.train.sources import vocabulary_of

SEED = 12_345


@dataclass(frozen=True)
class MaskedTexts:
    """Sequences with masks, the positions of the masks, and the pieces that were replaced."""

    batch: Batch
    positions: Tensor
    targets: Tensor

    @torch.no_grad()
    def measure(self, network: AlbertForPretraining) -> tuple[float, float]:
        """Return the masked-LM loss and accuracy of a network."""
        hidden = network.albert(self.batch, self.positions)
        logits = network.masked_lm(hidden, network.albert.embedding.word.weight).float()
        accuracy = (logits.argmax(-1) == self.targets).float().mean()
        return float(F.cross_entropy(logits, self.targets)), float(accuracy)


def masked_texts(model: Model, texts: Sequence[str], *, longest: int) -> MaskedTexts:
    """Join texts, cut them into sequences of `longest` pieces, and mask them as in pretraining.

    Raises:
        LitebertError: LB-763, the model has no masked-LM head, or the texts are too short.
    """
    size = min(longest, model.network.config.max_position_embeddings) - 2
    joined = [id_ for ids in model.tokenizer.encode_ids(texts) for id_ in ids]
    whole = len(joined) // size * size
    if "fill" not in model.verbs or not whole:
        raise LitebertError(
            "LB-763",
            "this study needs a masked-LM head, and text for at least one sequence",
            received=f"{model.source} with {', '.join(model.verbs)}; {len(joined):,} pieces",
            expected=f"a pretrained model, and {size:,} pieces or more",
            next="give more texts, or lower --longest",
        )
    pieces = [joined[start : start + size] for start in range(0, whole, size)]
    batch = frame(model.network, model.tokenizer, pieces)
    vocabulary, config = vocabulary_of(model.tokenizer), ObjectiveConfig()
    ids, places = batch.ids.numpy().copy(), []
    for number, (start, stop) in enumerate(pairwise(batch.offsets.tolist())):
        generator = rng.stream(SEED, "study-masks", number)
        masking = mask(ids[start:stop], vocabulary=vocabulary, config=config, generator=generator)
        places.append(start + masking.positions)
        ids[places[-1]] = masking.replacements
    positions = torch.from_numpy(np.concatenate(places))
    masked = Batch.from_flat(torch.from_numpy(ids), batch.segments, batch.lengths)
    return MaskedTexts(masked, positions, batch.ids[positions])
