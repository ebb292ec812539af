"""ALBERT (Lan et al., arXiv 1909.11942): embed, apply the steps of a plan over shared
blocks, pool.

Line numbers in modeling.py refer to google-research/albert. The code here is simple and
computes every token; `litebert.fast` returns the same numbers faster, through a single
hook, `Albert.engine`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Activation, AlbertConfig
from litebert.errors import LitebertError
from litebert.nn.batch import Batch
from litebert.plugins import ATTENTION_KINDS

ACTIVATIONS: dict[Activation, nn.Module] = {
    # the official "gelu" in every version (modeling.py L299)
    "gelu_new": nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": nn.GELU(approximate="tanh"),
    "gelu": nn.GELU(),
    "relu": nn.ReLU(),
    "tanh": nn.Tanh(),
    "linear": nn.Identity(),
}

Visible: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(query, key) -> whether the query attends to the key; both are positions in a
sequence.
"""


class Embedding(nn.Module):
    """Sum three embeddings of width E, normalize, apply dropout, and project to H
    (modeling.py L196).
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.embedding_size

        # The tables are allocated without values: `initialize` draws them, and
        # nn.Embedding's own initialization would load torch's compiler on the meta
        # device.
        def table(rows: int) -> nn.Embedding:
            return nn.Embedding(rows, size, _weight=torch.empty(rows, size))

        self.word = table(config.vocab_size)
        self.position = table(config.max_position_embeddings)  # learned, not sinusoidal
        self.segment = table(config.type_vocab_size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        # V x E + E x H parameters instead of V x H (paper 3.1): for base 3.9 million
        # instead of 23. With E = H, no projection is needed.
        self.projection: nn.Module = nn.Identity()
        if config.projects_embeddings:
            self.projection = nn.Linear(size, config.hidden_size)

    def forward(self, batch: Batch) -> Float[Tensor, "tokens hidden"]:
        """Embed every token; raise LB-451 if a sequence is longer than the position
        table.
        """
        hidden: Tensor = self.projection(self.look_up(batch))
        return hidden

    def look_up(self, batch: Batch) -> Float[Tensor, "tokens embed"]:
        """Return the normalized sum of the three embeddings, before the projection."""
        longest = max(batch.lengths)
        room = len(self.position.weight)
        if longest > room:
            raise LitebertError(
                "LB-451",
                f"a sequence of {longest} tokens is longer than the model's position"
                " table",
                expected=f"at most {room} (max_position_embeddings)",
                next="shorten the text, or split it into windows",
            )
        # (tokens, embed) each; `positions` begin again at 0 in every sequence
        words = self.word(batch.ids)
        places = self.position(batch.positions)
        total = words + places + self.segment(batch.segments)
        normalized: Tensor = self.dropout(self.norm(total))
        return normalized


def attention_weights(
    query: Float[Tensor, "tokens heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    visible: Visible | None = None,
) -> Float[Tensor, "heads tokens tokens"]:
    """Return softmax(q k^T / sqrt(D)) of one sequence: each query's weights of the
    visible tokens (by default, all).
    """
    # 1 / sqrt(D) keeps the variance of a score near that of one product of channels.
    scores = torch.einsum("qhd,khd->hqk", query, key) * query.shape[-1] ** -0.5
    if visible is not None:
        place = torch.arange(len(query), device=query.device)
        # (queries, keys), the same for every head
        is_visible = visible(place[:, None], place)
        scores = scores.masked_fill(~is_visible, -torch.inf)  # a weight of exactly 0
    weights: Tensor = scores.softmax(-1)  # over the keys
    return weights


def attention(
    query: Float[Tensor, "tokens heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    batch: Batch,
    visible: Visible | None = None,
    dropout_prob: float = 0.0,
) -> Float[Tensor, "tokens heads head_size"]:
    """Return softmax(q k^T / sqrt(D)) v within each sequence."""
    # One sequence after the other: no token sees another sequence, and nothing is
    # padded. `litebert.fast.attention` computes the same for many at once.
    lengths = list(batch.lengths)
    queries = torch.split(query, lengths)
    keys = torch.split(key, lengths)
    values = torch.split(value, lengths)
    mixed = []  # of each sequence, (length, heads, head_size)
    for q, k, v in zip(queries, keys, values, strict=True):
        weights = attention_weights(q, k, visible)  # (heads, length, length)
        # of whole weights, as in the official code: what is left does not sum to 1
        kept_weights = F.dropout(weights, dropout_prob)
        mixed.append(torch.einsum("hqk,khd->qhd", kept_weights, v))
    return torch.cat(mixed)


class AttentionBlock(nn.Module):
    """norm(x + attention(x)): each token attends to the tokens of its sequence that are
    visible to it (L791).
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        # Three layers, as in the official checkpoints; `litebert.fast` fuses them.
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.output = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.attention_dropout_prob = config.attention_probs_dropout_prob
        self.heads = (config.num_attention_heads, config.head_size)
        self.visible: Visible | None = None  # None: every token reads all
        if not config.has_full_attention:
            visible = ATTENTION_KINDS[config.attention].visible
            if visible is not None:
                self.visible = partial(visible, **config.attention_arguments)

    def forward(
        self, x: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "tokens hidden"]:
        # (tokens, heads, head_size) each: a head is a slice of the channels that
        # attends on its own
        query = self.query(x).unflatten(-1, self.heads)
        key = self.key(x).unflatten(-1, self.heads)
        value = self.value(x).unflatten(-1, self.heads)
        dropout_prob = self.attention_dropout_prob if self.training else 0.0
        mixed = attention(query, key, value, batch, self.visible, dropout_prob)
        output = self.output(mixed.flatten(-2))  # (tokens, hidden)
        # post-norm, as in BERT and the official code
        normed: Tensor = self.norm(x + self.dropout(output))
        return normed


class FeedForwardBlock(nn.Module):
    """norm(x + feed_forward(x)): two layers with an activation between them, for each
    token separately (L934).
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        wide = config.intermediate_size
        self.intermediate = nn.Linear(size, wide)
        self.output = nn.Linear(wide, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.hidden_act = config.hidden_act
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(
        self, x: Float[Tensor, "*tokens hidden"]
    ) -> Float[Tensor, "*tokens hidden"]:
        # two thirds of a block's parameters and products are here
        wide = self.activation(self.intermediate(x))  # (tokens, intermediate)
        output = self.output(wide)  # (tokens, hidden)
        normed: Tensor = self.norm(x + self.dropout(output))
        return normed


class Blocks(NamedTuple):
    """The blocks that one step applies, as indices into the two lists of blocks."""

    attention: int
    feed_forward: int


def depth_plan(config: AlbertConfig) -> tuple[Blocks, ...]:
    """Return the steps of a network, layer by layer and inner group by inner group.

    A plan expresses every kind of sharing in Table 4 of the paper, groups and inner
    groups; BERT has sharing `none`. Layer i uses group i * G // L: the official int(i /
    L * G), without its errors of rounding (modeling.py L1089).

    >>> depth_plan(AlbertConfig(num_hidden_layers=2, sharing="attention"))
    (Blocks(attention=0, feed_forward=0), Blocks(attention=0, feed_forward=1))
    """
    groups = config.num_hidden_groups
    inner = config.inner_group_num
    plan = []
    for number in range(config.num_steps):
        # a layer has `inner` steps, each with its own blocks
        layer, inner_index = divmod(number, inner)
        group = layer * groups // config.num_hidden_layers
        shared = group * inner + inner_index
        # What is not shared has a block for each step, with the number of the step.
        attention = shared if config.sharing in ("all", "attention") else number
        feed_forward = shared if config.sharing in ("all", "ffn") else number
        plan.append(Blocks(attention, feed_forward))
    return tuple(plan)


class Engine(Protocol):
    """What computes an encoder in place of its plain blocks; `litebert.fast` has one."""

    def states(
        self, albert: "Albert", batch: Batch, queries: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield the states as `Albert.states` does."""
        ...

    def last(
        self, albert: "Albert", batch: Batch, queries: Tensor | None = None
    ) -> Tensor:
        """Return the last states, as `Albert.forward` does."""
        ...


class Albert(nn.Module):
    """The encoder: tokens in, one hidden vector per token out.

    `depth` is the number of steps of the plan that are applied. If `engine` is set, it
    computes the states, with activations in `dtype`. The weights stay in float32, and
    the plain blocks compute in it.

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
        self.config = config
        self.dtype = dtype
        self.embedding = Embedding(config)
        # Depth is a plan: which blocks each step applies. Sharing is in the plan alone.
        self.plan = depth_plan(config)
        self.depth = len(self.plan)
        # As many blocks as the plan names: one of each for a model that shares all.
        num_attention = len({step.attention for step in self.plan})
        num_feed_forward = len({step.feed_forward for step in self.plan})
        attention = [AttentionBlock(config) for _ in range(num_attention)]
        feed_forward = [FeedForwardBlock(config) for _ in range(num_feed_forward)]
        # ModuleList hides the type of its items
        self.attention = cast("Sequence[AttentionBlock]", nn.ModuleList(attention))
        self.feed_forward = cast(
            "Sequence[FeedForwardBlock]", nn.ModuleList(feed_forward)
        )
        self.pooler: nn.Linear | None = None
        if has_pooler:
            self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.engine: Engine | None = None
        initialize(self, std=config.initializer_range, generator=generator)

    def forward(
        self, batch: Batch, queries: Int[Tensor, " queries"] | None = None
    ) -> Float[Tensor, "queries hidden"]:
        """Return the last hidden state of every token, or of the tokens at `queries`,
        in order.
        """
        if self.engine is not None:
            return self.engine.last(self, batch, queries)
        for x in self.states(batch, queries):
            last = x  # keep one state in memory, not a list of all
        return last

    def states(
        self, batch: Batch, queries: Int[Tensor, " queries"] | None = None
    ) -> Iterator[Float[Tensor, "rows hidden"]]:
        """Yield the projected embeddings, then the states after each step; after the
        last, only those of `queries`.
        """
        if self.engine is not None:
            yield from self.engine.states(self, batch, queries)
            return
        x = self.embedding(batch)  # (tokens, hidden)
        yield x
        for number, step in enumerate(self.plan[: self.depth], start=1):
            # The same block may come again: its weights are applied to other states.
            x = self.attention[step.attention](x, batch)
            x = self.feed_forward[step.feed_forward](x)
            if number == self.depth and queries is not None:
                x = x[queries]  # the engine leaves the others out earlier
            yield x

    def pool(
        self, first: Float[Tensor, "sequences hidden"]
    ) -> Float[Tensor, "sequences hidden"]:
        """Return tanh(W h + b) of each sequence's first token (modeling.py L247)."""
        assert self.pooler is not None, "this encoder was built without its pooler"
        # in float32 like the heads, whatever the activations of the encoder are
        return torch.tanh(self.pooler(first.float()))


def initialize(
    module: nn.Module, *, std: float, generator: torch.Generator | None = None
) -> None:
    """Draw matrices from a normal truncated at 2 `std`, which leaves 0.88 of `std`; set
    norms to 1 and biases to 0.
    """
    # In the order of the names, on which the random numbers of each matrix depend.
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 1:
            nn.init.ones_(parameter)
        else:
            nn.init.trunc_normal_(parameter, 0.0, std, -2 * std, 2 * std, generator)
