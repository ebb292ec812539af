"""Studies by the masked-LM loss of texts: local attention and its cost, and every depth of a network.

The masks are the same at every call, so that models and depths are compared on the same words.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.errors import LitebertError
from litebert.fast import accelerate, pack
from litebert.inference.model import Model
from litebert.inference.texts import frame
from litebert.nn import AlbertForPretraining, Batch
from litebert.objectives import mask
from litebert.study.cost import forward_seconds
from litebert.study.findings import AtDepth, Depths, LocalAttention, MaskedLoss, TokenCost
from litebert.train.run import write_model
from litebert.train.sources import vocabulary_of

LENGTHS = (512, 1_024, 2_048, 4_096, 8_192)
WINDOWS = (16, 64, 256)
SEED = 12_345


@dataclass(frozen=True)
class MaskedTexts:
    """Sequences with masks, the positions of the masks, and the pieces that were replaced."""

    network: AlbertForPretraining
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
    """Join texts, cut them into sequences of `longest` pieces, and mask them as in pretraining."""
    size = min(longest, model.network.config.max_position_embeddings) - 2
    joined = [id_ for ids in model.tokenizer.encode_ids(texts) for id_ in ids]
    whole = len(joined) // size * size
    if "fill" not in model.verbs or not whole:
        raise LitebertError(
            "LB-763",
            f"this study needs a masked-LM head, and {size:,} pieces of text or more",
            received=f"{model.source} with {', '.join(model.verbs)}; {len(joined):,} pieces",
            next="give more texts, or lower --longest",
        )
    assert isinstance(model.network, AlbertForPretraining)
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
    return MaskedTexts(model.network, masked, positions, batch.ids[positions])


def measure_depths(model: Model, texts: Sequence[str], *, longest: int = 128, rounds: int = 3) -> Depths:
    """Measure the masked-LM head of a model on the hidden states after each of its steps."""
    masked = masked_texts(model, texts, longest=longest)
    albert = masked.network.albert
    full = albert.depth
    found = []
    try:
        for depth in range(1, full + 1):
            albert.depth = depth
            seconds = []
            for _ in range(rounds):
                begun = time.process_time()
                loss, accuracy = masked.measure(masked.network)
                seconds.append(time.process_time() - begun)
            micro = round(1e6 * median(seconds) / len(masked.batch.ids), 2)
            found.append(AtDepth(depth=depth, loss=loss, accuracy=accuracy, microseconds=micro))
    finally:
        albert.depth = full
    return Depths(source=model.source, num_masked=len(masked.targets), depths=found)


@torch.no_grad()
def measure_local_attention(
    model: Model,
    texts: Sequence[str],
    *,
    window: int = 64,
    lengths: Sequence[int] = LENGTHS,
    windows: Sequence[int] = WINDOWS,
    rounds: int = 3,
    longest: int = 512,
) -> LocalAttention:
    """Compare local attention with full attention and with its own dense formula.

    For lengths beyond the model's positions, its position table is repeated. The loss is that of the model's own
    weights, not trained with local attention, on sequences of `longest` tokens.
    """
    if not lengths or min(lengths) < 1:
        what = "the lengths to time are numbers of tokens, such as 512,8192"
        raise LitebertError("LB-765", what, received=lengths, next="litebert study attention --help")
    masked = masked_texts(model, texts, longest=longest)
    network, positions = masked.network, masked.network.config.max_position_embeddings

    # How far the training kernels and the packed weights are from the dense formula, which masks scores of all pairs.
    encoded = [ids for ids in model.tokenizer.encode_ids(texts) if ids]
    batch = frame(network, model.tokenizer, encoded)
    local = lengthened(network, positions, window=window)
    expected = local.albert(batch)
    accelerate(local)
    training_difference = float((local.albert(batch) - expected).abs().max())
    pack(local.albert)
    packed_difference = float((local.albert(batch) - expected).abs().max())

    costs = []
    for length in lengths:
        networks = [lengthened(network, length, window=each) for each in (None, window)]
        for each in networks:
            accelerate(each)
            pack(each.albert)
        batch = Batch.from_lists([[5] * length])
        # One after the other in every round, so that other work on the machine cancels.
        rows = [[forward_seconds(each, batch) for each in networks] for _ in range(rounds)]
        full_time, local_time = (1e6 * median(taken) / length for taken in zip(*rows, strict=True))
        costs.append(TokenCost(length=length, full=full_time, local=local_time))

    losses = []
    for size in (None, *windows):
        seen = lengthened(network, positions, window=size)
        accelerate(seen)
        losses.append(MaskedLoss(window=size, loss=masked.measure(seen)[0]))
    return LocalAttention(
        source=model.source,
        window=window,
        num_tokens=sum(map(len, encoded)),
        training_difference=training_difference,
        packed_difference=packed_difference,
        costs=costs,
        losses=losses,
    )


def lengthened(
    network: AlbertForPretraining, positions: int, *, window: int | None, trained: int | None = None
) -> AlbertForPretraining:
    """Return the same weights with more positions, their table repeated, and local attention if there is a window.

    The repeated rows are a start for further training: their order within each copy is right. Only the first `trained`
    rows are repeated, which are those that training reached (default: all).

    >>> from litebert.config import AlbertConfig
    >>> config = AlbertConfig(vocab_size=9, hidden_size=8, num_attention_heads=2, max_position_embeddings=4)
    >>> table = lengthened(AlbertForPretraining(config), 10, window=2).albert.embedding.position
    >>> bool((table.weight[4:8] == table.weight[:4]).all())
    True
    """
    changes: dict[str, object] = {"max_position_embeddings": positions}
    if window is not None:
        changes |= {"attention": "local", "attention_window": window}
    longer = AlbertForPretraining(network.config.model_copy(update=changes), dtype=network.albert.dtype)
    state = {name: tensor for name, tensor in network.state_dict().items() if not tensor.is_meta}
    name = "albert.embedding.position.weight"
    table = state[name]
    rows = torch.arange(positions, device=table.device) % min(trained or len(table), len(table))
    longer.load_state_dict(state | {name: table[rows]}, strict=False)
    return longer.eval()


def write_lengthened(
    model: Model, folder: Path, positions: int, window: int | None, *, trained: int | None = None
) -> None:
    """Write a lengthened model, from which further training can start (`litebert pretrain --from`)."""
    assert isinstance(model.network, AlbertForPretraining)
    write_model(folder, lengthened(model.network, positions, window=window, trained=trained), model.tokenizer)
