"""ALBERT (paper 3.1): embed, apply the steps of the plan, pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import AlbertConfig
from litebert.nn.batch import Batch, Layout
from litebert.nn.block import AttentionBlock, FeedForwardBlock, Half, Steps
from litebert.nn.embedding import Embedding
from litebert.nn.init import initialise
from litebert.nn.plan import depth_plan


class Albert(nn.Module):
    """The encoder: tokens in, one hidden vector a token out.

    Weights stay in float32; activations have `dtype` (bf16 halves time and memory). `depth` is how
    many steps of the plan are applied. `make_steps` returns the functions of the steps: the blocks
    themselves, unless an engine puts faster ones in their place.

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
        plan = self.plan = depth_plan(config)
        self.depth = len(self.plan)
        self.embedding = Embedding(config)
        self.attention = nn.ModuleList(AttentionBlock(config) for _ in {i for i, _ in plan})
        self.feed_forward = nn.ModuleList(FeedForwardBlock(config) for _ in {j for _, j in plan})
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if has_pooler else None
        self.apply_block: Callable[[Half, Tensor, Layout], Tensor] = lambda f, x, y: f(x, y)
        self.make_steps: Callable[[Albert], Steps] = blocks_of_plan
        initialise(self, std=config.initializer_range, generator=generator)

    def forward(
        self, batch: Batch, queries: Int[Tensor, " queries"] | None = None
    ) -> Float[Tensor, "queries hidden"]:
        """Return the last hidden state of every token, or of those at `queries` in that order.

        `queries` index the flat tokens, each once; the last step computes nothing for the others.
        """
        for hidden in self.states(batch, queries):
            last = hidden
        return last

    def states(
        self, batch: Batch, queries: Int[Tensor, " queries"] | None = None
    ) -> Iterator[Float[Tensor, "rows hidden"]]:
        """Yield the projected embeddings, then the hidden states after each step."""
        num_tokens, order, layout = len(batch.ids), None, Layout(batch)
        hidden, steps = self.embed(batch), self.steps()
        yield hidden[:num_tokens]
        for number, (attend, transform) in enumerate(steps, start=1):
            if number == len(steps) and queries is not None:
                ascending, order = queries.sort()
                layout = Layout(batch, ascending)
            hidden = self.apply_block(attend, hidden, layout)
            hidden = self.apply_block(transform, hidden, layout)
            yield hidden[:num_tokens] if order is None else hidden[order.argsort()]

    def embed(self, batch: Batch) -> Float[Tensor, "tokens hidden"]:
        """Return the projected embeddings, which the first step is given."""
        embedded: Tensor = self.embedding(batch)
        return embedded.to(self.dtype)

    def steps(self) -> Steps:
        """Return the functions of the steps that are applied."""
        return self.make_steps(self)[: self.depth]

    def pool(self, first: Float[Tensor, "sequences hidden"]) -> Float[Tensor, "sequences hidden"]:
        """Return tanh(W h + b) of each sequence's first token (modeling.py L247)."""
        assert self.pooler is not None, "this encoder was built without its pooler"
        return torch.tanh(self.pooler(first.float()))

    def checkpoint_gradients(self) -> None:
        """Keep only each block's input for the backward pass and recompute the rest there."""
        self.apply_block = partial(checkpoint, use_reentrant=False)


def blocks_of_plan(albert: Albert) -> Steps:
    """Return the blocks themselves, in the order of the plan."""
    return [(albert.attention[i], albert.feed_forward[j]) for i, j in albert.plan]
