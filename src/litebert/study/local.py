"""Local attention: is it exact, what does a token cost at each length, what does it lose?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import torch
from pydantic import BaseModel

from litebert.errors import LitebertError
from litebert.fast import accelerate, pack
from litebert.inference.model import Model
from litebert.inference.pretrained import frame
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.study.masked import MaskedTexts, masked_texts

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
