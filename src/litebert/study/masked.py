"""Studies by masked texts: local attention (is it exact, what does a token cost, what is lost), and every depth."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor
from torch.nn import functional as F

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.errors import LitebertError
from litebert.fast import accelerate, pack
from litebert.inference.model import Model
from litebert.inference.pretrained import frame
from litebert.nn import Albert, AlbertForPretraining, Batch
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


LENGTHS = (512, 1_024, 2_048, 4_096, 8_192)
WINDOWS = (16, 64, 256)


class TokenCost(BaseModel):
    """CPU microseconds per token at one length: medians over interleaved rounds."""

    length: int
    full: float
    local: float


class MaskedLoss(BaseModel):
    """Masked-LM loss of the same weights with one window; a window of None is full attention."""

    window: int | None
    loss: float


class LocalAttention(BaseModel):
    """What `litebert study attention` found.

    `training_difference` and `packed_difference` are the largest differences between the engine's
    last hidden states and those of the masked dense formula, over all texts.
    """

    source: str
    window: int
    num_tokens: int
    training_difference: float
    packed_difference: float
    costs: list[TokenCost]
    losses: list[MaskedLoss]

    @property
    def summary(self) -> str:
        """Say in a few sentences what was found."""
        first, last = self.costs[0], self.costs[-1]
        full, *others = self.losses
        lost = ", ".join(f"{x.loss - full.loss:+.3f} at {x.window}" for x in others)
        return (
            f"{self.source}, window {self.window}: hidden states differ from the masked dense "
            f"formula by at most {max(self.training_difference, self.packed_difference):.1e}. A "
            f"token costs {last.local / first.local:.2f} times as much at {last.length:,} tokens "
            f"as at {first.length:,}, with full attention {last.full / first.full:.2f} times. "
            f"Without training for it, the masked-LM loss ({full.loss:.3f}) changes by {lost}."
        )


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

    For lengths beyond the model's positions, its position table is repeated. The loss is that of
    the model's own weights, not trained with local attention, on sequences of `longest` tokens.

    Raises:
        LitebertError: LB-763, no masked-LM head, or texts that are too short; LB-765, no length.
    """
    if not lengths or min(lengths) < 1:
        raise LitebertError(
            "LB-765",
            "there is no length to time",
            received=", ".join(map(str, lengths)) or "no number",
            expected="numbers of tokens, such as 512,8192",
            next="litebert study attention --help",
        )
    masked, network = masked_texts(model, texts, longest=longest), model.network
    assert isinstance(network, AlbertForPretraining)
    encoded = [ids for ids in model.tokenizer.encode_ids(texts) if ids]
    differences = _differences(network, frame(network, model.tokenizer, encoded), window)
    return LocalAttention(
        source=model.source,
        window=window,
        num_tokens=sum(map(len, encoded)),
        training_difference=differences[0],
        packed_difference=differences[1],
        costs=[_cost(network, window, length, rounds) for length in lengths],
        losses=[MaskedLoss(window=each, loss=_loss(network, each, masked)) for each in (None, *windows)],
    )


def lengthened(
    network: AlbertForPretraining, positions: int, *, window: int | None, trained: int | None = None
) -> AlbertForPretraining:
    """Return the same weights with more positions, their table repeated, and local attention.

    The repeated rows are a start for further training: their order within each copy is right.
    Only the first `trained` rows are repeated, which are those that training reached (default:
    all).

    >>> from litebert.config import AlbertConfig
    >>> config = AlbertConfig(
    ...     vocab_size=9, hidden_size=8, num_attention_heads=2, max_position_embeddings=4
    ... )
    >>> table = lengthened(AlbertForPretraining(config), 10, window=2).albert.embedding.position
    >>> bool((table.weight[4:8] == table.weight[:4]).all())
    True
    """
    changes: dict[str, object] = {"max_position_embeddings": positions}
    if window is not None:
        changes |= {"attention": "local", "attention_window": window}
    config = network.config.model_copy(update=changes)
    longer = AlbertForPretraining(config, dtype=network.albert.dtype)
    state = {name: tensor for name, tensor in network.state_dict().items() if not tensor.is_meta}
    name = "albert.embedding.position.weight"
    table = state[name]
    rows = torch.arange(positions, device=table.device) % min(trained or len(table), len(table))
    longer.load_state_dict(state | {name: table[rows]}, strict=False)
    return longer.eval()


@torch.no_grad()
def _differences(network: AlbertForPretraining, batch: Batch, window: int) -> tuple[float, float]:
    """Return how far the training kernels and the packed weights are from the dense formula."""
    local = lengthened(network, network.config.max_position_embeddings, window=window)
    expected = local.albert(batch)  # the plain network masks the scores of all pairs
    accelerate(local)
    training = float((local.albert(batch) - expected).abs().max())
    pack(local.albert)
    return training, float((local.albert(batch) - expected).abs().max())


def _cost(network: AlbertForPretraining, window: int, length: int, rounds: int) -> TokenCost:
    kinds = [lengthened(network, length, window=each) for each in (None, window)]
    batch = Batch.from_lists([[5] * length])
    for kind in kinds:
        accelerate(kind)
        pack(kind.albert)
    seconds = [[_forward_seconds(kind.albert, batch) for kind in kinds] for _ in range(rounds)]
    full, local = (1e6 * median(each) / length for each in zip(*seconds, strict=True))
    return TokenCost(length=length, full=full, local=local)


@torch.no_grad()
def _forward_seconds(albert: Albert, batch: Batch) -> float:
    begun = time.process_time()
    albert(batch)
    return time.process_time() - begun


def _loss(network: AlbertForPretraining, window: int | None, masked: MaskedTexts) -> float:
    seen = lengthened(network, network.config.max_position_embeddings, window=window)
    accelerate(seen)
    return masked.measure(seen)[0]


class AtDepth(BaseModel):
    """One depth: masked-LM measures, and CPU microseconds a token (median of the rounds)."""

    depth: int
    loss: float
    accuracy: float
    microseconds: float


class Depths(BaseModel):
    """What `litebert study depth` found."""

    source: str
    num_masked: int
    depths: list[AtDepth]

    @property
    def summary(self) -> str:
        """Say in one sentence what half of the depth costs and gives."""
        last, half = self.depths[-1], self.depths[(len(self.depths) + 1) // 2 - 1]
        best = min(self.depths, key=lambda each: each.loss)
        return (
            f"{self.source}: at depth {half.depth} of {last.depth} the masked-LM loss is "
            f"{half.loss:.3f}, at full depth {last.loss:.3f}, for "
            f"{half.microseconds / last.microseconds:.2f} of its time; "
            f"it is lowest at depth {best.depth}."
        )


def measure_depths(model: Model, texts: Sequence[str], *, longest: int = 128, rounds: int = 3) -> Depths:
    """Measure the masked-LM head of a model on the hidden states after each of its steps.

    Raises:
        LitebertError: LB-763, the model has no masked-LM head, or the texts are too short.
    """
    texts_with_masks = masked_texts(model, texts, longest=longest)
    network = model.network
    assert isinstance(network, AlbertForPretraining)
    full = network.albert.depth
    found = []
    try:
        for depth in range(1, full + 1):
            network.albert.depth = depth
            seconds = []
            for _ in range(rounds):
                begun = time.process_time()
                loss, accuracy = texts_with_masks.measure(network)
                seconds.append(time.process_time() - begun)
            micro = 1e6 * median(seconds) / len(texts_with_masks.batch.ids)
            found.append(AtDepth(depth=depth, loss=loss, accuracy=accuracy, microseconds=round(micro, 2)))
    finally:
        network.albert.depth = full
    return Depths(source=model.source, num_masked=len(texts_with_masks.targets), depths=found)
