"""ALBERT (paper 3.1): embed, apply the steps of the plan, pool."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from litebert.config import AlbertConfig
from litebert.nn.batch import Batch, Layout
from litebert.nn.block import AttentionBlock, FeedForwardBlock, Half, Steps
from litebert.nn.embedding import Embedding


class Step(NamedTuple):
    """Name the blocks of one step by their index in the two lists of blocks."""

    attention: int
    feed_forward: int


def depth_plan(config: AlbertConfig) -> tuple[Step, ...]:
    """Return the steps of a network, layer by layer and inner group by inner group.

    Every sharing of paper Table 4, groups and inner groups are plans; BERT is the plan `none`.
    Layer i uses group i * G // L (official modeling.py L1089, in integers).

    >>> depth_plan(AlbertConfig(num_hidden_layers=2, sharing="attention"))
    (Step(attention=0, feed_forward=0), Step(attention=0, feed_forward=1))
    """
    groups, inner = config.num_hidden_groups, config.inner_group_num
    steps = []
    for own in range(config.num_steps):
        layer, inner_index = divmod(own, inner)
        shared = layer * groups // config.num_hidden_layers * inner + inner_index
        attention = shared if config.sharing in ("all", "attention") else own
        feed_forward = shared if config.sharing in ("all", "ffn") else own
        steps.append(Step(attention, feed_forward))
    return tuple(steps)


class Albert(nn.Module):
    """The encoder: tokens in, one hidden vector per token out.

    Weights stay in float32; activations have `dtype`. `depth` is how many steps of the plan are
    applied; `make_steps` returns them: the blocks, unless an engine replaces them by faster ones.

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
        self.config, self.dtype, self.embedding = config, dtype, Embedding(config)
        plan = self.plan = depth_plan(config)
        self.depth = len(plan)
        self.attention = nn.ModuleList(AttentionBlock(config) for _ in {i for i, _ in plan})
        self.feed_forward = nn.ModuleList(FeedForwardBlock(config) for _ in {j for _, j in plan})
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if has_pooler else None
        self.apply_block: Callable[[Half, Tensor, Layout], Tensor] = lambda f, x, y: f(x, y)
        self.make_steps: Callable[[Albert], Steps] = lambda albert: [
            (albert.attention[i], albert.feed_forward[j]) for i, j in albert.plan
        ]
        initialise(self, std=config.initializer_range, generator=generator)

    def forward(self, batch: Batch, queries: Int[Tensor, " queries"] | None = None) -> Float[Tensor, "queries hidden"]:
        """Return the last hidden state of every token, or of the tokens at `queries`, in order."""
        for hidden in self.states(batch, queries):
            last = hidden
        return last

    def states(
        self, batch: Batch, queries: Int[Tensor, " queries"] | None = None
    ) -> Iterator[Float[Tensor, "rows hidden"]]:
        """Yield the projected embeddings, then the hidden states after each step."""
        num_tokens, order, layout = len(batch.ids), None, Layout(batch)
        yield (hidden := self.embedding(batch).to(self.dtype))
        steps = self.steps()
        for number, (attend, transform) in enumerate(steps, start=1):
            if number == len(steps) and queries is not None:  # the last step: the queries alone
                ascending, order = queries.sort()
                layout = Layout(batch, ascending)
            hidden = self.apply_block(transform, self.apply_block(attend, hidden, layout), layout)
            yield hidden[:num_tokens] if order is None else hidden[order.argsort()]

    def steps(self) -> Steps:
        """Return the functions of the steps that are applied."""
        return self.make_steps(self)[: self.depth]

    def pool(self, first: Float[Tensor, "sequences hidden"]) -> Float[Tensor, "sequences hidden"]:
        """Return tanh(W h + b) of each sequence's first token (modeling.py L247)."""
        assert self.pooler is not None, "this encoder was built without its pooler"
        return torch.tanh(self.pooler(first.float()))


def initialise(module: nn.Module, *, std: float, generator: torch.Generator | None = None) -> None:
    """Draw matrices from a normal cut off at 2 `std`, which leaves 0.88 of `std`; norms are 1."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 1:
            nn.init.ones_(parameter)
        else:
            nn.init.trunc_normal_(parameter, 0.0, std, -2 * std, 2 * std, generator)
