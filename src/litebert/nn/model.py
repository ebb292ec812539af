"""ALBERT: embed, apply the plan, pool; and the two heads it is pretrained with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import AlbertConfig
from litebert.nn.batch import Batch
from litebert.nn.block import AttentionBlock, Block, FeedForwardBlock, Prepared
from litebert.nn.embedding import Embedding
from litebert.nn.heads import MaskedLMHead, SentenceOrderHead
from litebert.nn.init import initialise
from litebert.nn.plan import depth_plan
from litebert.nn.rows import filled


class Albert(nn.Module):
    """The encoder (paper 3.1): tokens in, one hidden vector a token out.

    Weights stay in float32; activations have `dtype` (bf16 halves time and memory).

    >>> model = Albert(AlbertConfig(vocab_size=10, hidden_size=8, num_attention_heads=2))
    >>> model(Batch.from_lists([[2, 7, 3]])).shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        config: AlbertConfig,
        *,
        has_pooler: bool = True,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config, self.dtype = config, dtype
        self.plan = depth_plan(config)
        self.embedding = Embedding(config)
        num_attention = 1 + max(step.attention for step in self.plan)
        num_feed_forward = 1 + max(step.feed_forward for step in self.plan)
        self.attention = nn.ModuleList(AttentionBlock(config) for _ in range(num_attention))
        self.feed_forward = nn.ModuleList(FeedForwardBlock(config) for _ in range(num_feed_forward))
        size = config.hidden_size
        self.pooler = nn.Linear(size, size) if has_pooler else None
        self.apply_block: Callable[[Prepared, Tensor, Batch], Tensor] = _directly
        initialise(self, std=config.initializer_range, generator=generator)

    def forward(self, batch: Batch) -> Float[Tensor, "tokens hidden"]:
        """Return the last hidden state of every token."""
        for hidden in self.states(batch):
            last = hidden
        return last

    def states(self, batch: Batch) -> Iterator[Float[Tensor, "tokens hidden"]]:
        """Yield the projected embeddings, then the hidden states after each step."""
        attend = _prepared(self.attention, self.dtype)
        transform = _prepared(self.feed_forward, self.dtype)
        num_tokens = len(batch.ids)
        hidden = filled(self.embedding(batch).to(self.dtype))
        yield hidden[:num_tokens]
        for step in self.plan:
            hidden = self.apply_block(attend[step.attention], hidden, batch)
            hidden = self.apply_block(transform[step.feed_forward], hidden, batch)
            yield hidden[:num_tokens]

    def pool(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "sequences hidden"]:
        """Return tanh(W h + b) of each sequence's first token (modeling.py L247)."""
        assert self.pooler is not None, "this encoder was built without its pooler"
        first = hidden[batch.first_tokens].float()
        return torch.tanh(self.pooler(first))

    def checkpoint_gradients(self) -> None:
        """Keep only each block's input for the backward pass and recompute the rest there."""
        self.apply_block = partial(checkpoint, use_reentrant=False)


class PretrainingOutput(NamedTuple):
    """Logits of the two objectives."""

    masked_lm: Float[Tensor, "masked vocab"]
    sentence_order: Float[Tensor, "sequences 2"]


class AlbertForPretraining(nn.Module):
    """The encoder with its masked-LM and sentence-order heads (run_pretraining.py L294-361)."""

    def __init__(
        self,
        config: AlbertConfig,
        *,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.albert = Albert(config, dtype=dtype, generator=generator)
        self.masked_lm = MaskedLMHead(config)
        self.sentence_order = SentenceOrderHead(config)
        for head in (self.masked_lm, self.sentence_order):
            initialise(head, std=config.initializer_range, generator=generator)

    @property
    def config(self) -> AlbertConfig:
        """The network's configuration."""
        return self.albert.config

    def forward(self, batch: Batch, masked_positions: Int[Tensor, " masked"]) -> PretrainingOutput:
        """Return masked-LM logits at `masked_positions` (indices into the flat tokens) only."""
        hidden = self.albert(batch)
        table = self.albert.embedding.word.weight
        return PretrainingOutput(
            masked_lm=self.masked_lm(hidden[masked_positions], table),
            sentence_order=self.sentence_order(self.albert.pool(hidden, batch)),
        )


def _prepared(blocks: Iterable[nn.Module], dtype: torch.dtype) -> list[Prepared]:
    return [cast(Block, block).prepare(dtype) for block in blocks]


def _directly(block: Prepared, hidden: Tensor, batch: Batch) -> Tensor:
    return block(hidden, batch)
