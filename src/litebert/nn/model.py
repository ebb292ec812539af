"""ALBERT: embed, apply the plan, pool; and the two heads it is pretrained with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import AlbertConfig, Precision
from litebert.nn.batch import Batch
from litebert.nn.block import AttentionBlock, FeedForwardBlock, Prepared
from litebert.nn.embedding import Embedding
from litebert.nn.heads import MaskedLMHead, SentenceOrderHead
from litebert.nn.init import initialise
from litebert.nn.layout import Layout
from litebert.nn.plan import depth_plan
from litebert.nn.rows import filled

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""The dtype of activations for each precision."""

BlockT = TypeVar("BlockT", AttentionBlock, FeedForwardBlock)
Steps: TypeAlias = Sequence[tuple[Prepared, Prepared]]
"""The attention and the feed-forward of each step."""


class Albert(nn.Module):
    """The encoder (paper 3.1): tokens in, one hidden vector a token out.

    Weights stay in float32; activations have `dtype` (bf16 halves time and memory). `depth` is how
    many steps of the plan are applied, all unless it is set lower.

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
        self.depth = len(self.plan)
        self.embedding = Embedding(config)
        num_attention = 1 + max(step.attention for step in self.plan)
        num_feed_forward = 1 + max(step.feed_forward for step in self.plan)
        self.attention = nn.ModuleList(AttentionBlock(config) for _ in range(num_attention))
        self.feed_forward = nn.ModuleList(FeedForwardBlock(config) for _ in range(num_feed_forward))
        size = config.hidden_size
        self.pooler = nn.Linear(size, size) if has_pooler else None
        self.apply_block: Callable[[Prepared, Tensor, Layout], Tensor] = _directly
        self._packed: Steps | None = None
        self.register_load_state_dict_post_hook(_forget)  # type: ignore[no-untyped-call]
        initialise(self, std=config.initializer_range, generator=generator)

    def forward(
        self, batch: Batch, read: Int[Tensor, " read"] | None = None
    ) -> Float[Tensor, "read hidden"]:
        """Return the last hidden state of every token, or of those at `read` in that order.

        `read` indexes the flat tokens; the last step computes nothing for the others.
        """
        for hidden in self.states(batch, read):
            last = hidden
        return last

    def states(
        self, batch: Batch, read: Int[Tensor, " read"] | None = None
    ) -> Iterator[Float[Tensor, "rows hidden"]]:
        """Yield the projected embeddings, then the hidden states after each step."""
        num_tokens = len(batch.ids)
        # Padded rectangles are copies, which inference on a CPU likes and a backward pass does not.
        layout = Layout(batch, is_padded=not (batch.ids.is_cuda or torch.is_grad_enabled()))
        hidden = self.embed(batch)
        yield hidden[:num_tokens]
        steps = self.steps()
        for number, (attend, transform) in enumerate(steps, start=1):
            if number == len(steps) and read is not None:
                layout, num_tokens = replace(layout, read=read), len(read)
            hidden = self.apply_block(attend, hidden, layout)
            hidden = self.apply_block(transform, hidden, layout)
            yield hidden[:num_tokens]

    def embed(self, batch: Batch) -> Float[Tensor, "rows hidden"]:
        """Return what the first step is given: the projected embeddings, filled up."""
        return filled(self.embedding(batch).to(self.dtype))

    def steps(self) -> Steps:
        """Return the functions of the steps that are applied: packed where that serves."""
        packed = None if torch.is_grad_enabled() else self._packed
        return (packed or self._unpacked())[: self.depth]

    def use(self, steps: Steps | None) -> None:
        """Compute the steps with these functions where no gradient is wanted.

        `train()` and new weights drop them.
        """
        self._packed = steps

    @property
    def is_packed(self) -> bool:
        """Whether the weights are ready for inference."""
        return self._packed is not None

    def train(self, mode: bool = True) -> Albert:
        """Go to training or to evaluation, as any module."""
        if mode:
            self.use(None)
        return super().train(mode)

    def _apply(self, *arguments: Any, **options: Any) -> Albert:
        """Move or cast the weights, as any module."""
        self.use(None)
        super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        return self

    def _unpacked(self) -> Steps:
        attention = [block.prepare(self.dtype) for block in self.blocks(AttentionBlock)]
        feed_forward = [block.prepare(self.dtype) for block in self.blocks(FeedForwardBlock)]
        return self.in_order(attention, feed_forward)

    def in_order(self, attention: Sequence[Prepared], feed_forward: Sequence[Prepared]) -> Steps:
        """Return prepared blocks, one of each block of a kind, in the order of the plan."""
        return [(attention[step.attention], feed_forward[step.feed_forward]) for step in self.plan]

    def blocks(self, kind: type[BlockT]) -> Iterator[BlockT]:
        """Iterate over the blocks of one kind, in the order that the plan numbers them."""
        return (module for module in self.modules() if isinstance(module, kind))

    def pool(self, first: Float[Tensor, "sequences hidden"]) -> Float[Tensor, "sequences hidden"]:
        """Return tanh(W h + b) of each sequence's first token (modeling.py L247)."""
        assert self.pooler is not None, "this encoder was built without its pooler"
        return torch.tanh(self.pooler(first.float()))

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
        first, table = batch.first_tokens, self.albert.embedding.word.weight
        hidden = self.albert(batch, read=torch.cat([first, masked_positions]))
        return PretrainingOutput(
            masked_lm=self.masked_lm(hidden[len(first) :], table),
            sentence_order=self.sentence_order(self.albert.pool(hidden[: len(first)])),
        )


def _forget(albert: Albert, _: object) -> None:
    albert.use(None)


def _directly(block: Prepared, hidden: Tensor, layout: Layout) -> Tensor:
    return block(hidden, layout)
