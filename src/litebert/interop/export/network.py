"""A form of the network that exporters can trace.

It works on padded rectangles: no ragged batches, no control flow. Every block is
prepared once and applied at each of its steps, so that a weight is one constant however
often it is used. Weights are stored as [in, out], so that each product has a constant
operand.
"""

from copy import deepcopy
from itertools import chain

import torch
from torch import Tensor, nn

from litebert.errors import LitebertError
from litebert.nn import (
    Albert,
    AlbertForPretraining,
    AlbertForTask,
    AttentionBlock,
    LinearHead,
    MaskedLMHead,
    Network,
)
from litebert.tasks.kinds.family import NEVER
from litebert.tasks.kinds.spans import ConditionalSpanHead
from litebert.tasks.kinds.text_heads import VectorHead, vector_rows

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# the graph scores the ends of this many likeliest starts (official flag start_n_top)
NUM_STARTS = 5


class PaddedNetwork(nn.Module):
    """Map ids, mask (1 = a token) and segments, int64 (batch, length), to named
    outputs.

    Padding is on the right and does not change outputs. `lengths` is the range that it
    can read. With choices, inputs are (batch, choices, length): each choice is a
    separate sequence, and the logits are (batch, choices).
    """

    def __init__(
        self, albert: Albert, readers: "list[Reader]", *, has_choices: bool = False
    ) -> None:
        super().__init__()
        self.plan = albert.plan
        self.embedding = albert.embedding
        blocks = [PaddedAttention(block) for block in albert.attention]
        self.attention = nn.ModuleList(blocks)
        self.feed_forward = albert.feed_forward
        self.readers = nn.ModuleList(readers)
        self.has_choices = has_choices
        self.axes: tuple[str, ...] = ("batch", "length")
        if has_choices:
            self.axes = ("batch", "choices", "length")
        shortest = max(reader.shortest for reader in readers)
        longest = len(self.embedding.position.weight)
        self.lengths = range(shortest, longest + 1)
        names = chain.from_iterable(reader.names for reader in readers)
        self.output_names = tuple(names)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, ...]:
        # (sequences, length) each; a sequence is a row, or a choice of a row
        ids = input_ids.flatten(0, -2)
        mask = attention_mask.flatten(0, -2)
        segments = token_type_ids.flatten(0, -2)
        words = self.embedding.word(ids)
        positions = self.embedding.position.weight[: ids.shape[1]]
        summed = words + positions + self.embedding.segment(segments)
        normed = self.embedding.norm(summed)  # (sequences, length, embed)
        hidden: Tensor = self.embedding.projection(normed)
        # added to scores: (sequences, 1, 1, length), the same for all heads and queries
        penalty = (1 - mask[:, None, None].to(hidden.dtype)) * NEVER
        for step in self.plan:
            hidden = self.attention[step.attention](hidden, penalty)
            hidden = self.feed_forward[step.feed_forward](hidden)
        outputs = self.read(hidden, mask, segments)
        if not self.has_choices:
            return outputs
        return tuple(output.reshape(input_ids.shape[:2]) for output in outputs)

    def read(
        self, hidden: Tensor, mask: Tensor, segments: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the outputs for the last states, (sequences, length, hidden)."""
        outputs = list[Tensor]()
        for reader in self.readers:
            outputs += reader(hidden, mask, segments)
        return tuple(outputs)


class PaddedAttention(nn.Module):
    """LN(x + W_o attention(x)), with query, key and value in one product, and 1 /
    sqrt(head_size) in the weights.
    """

    def __init__(self, block: AttentionBlock) -> None:
        super().__init__()
        self.heads = block.heads
        self.output = block.output
        self.norm = block.norm
        _, head_size = block.heads
        scale = head_size**-0.5
        weights = [block.query.weight * scale, block.key.weight, block.value.weight]
        biases = [block.query.bias * scale, block.key.bias, block.value.bias]
        self.fused = Affine(torch.cat(weights, dim=1), torch.cat(biases))  # [in, 3 out]

    def forward(self, x: Tensor, penalty: Tensor) -> Tensor:
        # (batch, length, 3, heads, head_size)
        projected = self.fused(x).unflatten(-1, (3, *self.heads))
        # (batch, heads, length, head_size) each
        query, key, value = (part.transpose(1, 2) for part in projected.unbind(-3))
        # (batch, heads, length, length)
        scores = query @ key.transpose(-1, -2) + penalty
        by_head = scores.softmax(-1) @ value  # (batch, heads, length, head_size)
        mixed = by_head.transpose(1, 2).flatten(-2)  # (batch, length, hidden)
        normed: Tensor = self.norm(x + self.output(mixed))
        return normed


class Affine(nn.Module):
    """x W + b, with W as [in, out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().contiguous())
        self.bias = None if bias is None else nn.Parameter(bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


def pad_network(
    network: Network, *, has_head: bool = True, has_states: bool = False
) -> PaddedNetwork:
    """Return the network for padded rectangles, without layers that have parameters
    missing from the file.

    Without a head, its outputs are `last_hidden_state`, and `pooler_output` if there is
    a pooler. With `has_states`, for a page, `last_hidden_state` is added to a head's
    outputs, and sentence order, which no page uses, is left out.
    """
    padded = deepcopy(network).eval()
    _transpose_layers(padded)
    readers = list[Reader]()
    has_choices = False
    if has_head and isinstance(padded, AlbertForTask):
        readers = [_task_reader(padded)]
        kind = padded.head_config.task_kind
        has_choices = kind is not None and kind.has_several_sequences
    elif has_head and isinstance(padded, AlbertForPretraining):
        readers = _pretraining_readers(padded, has_order=not has_states)
    if not readers:
        readers = _encoder_readers(padded.albert)
    elif has_states:
        readers = [States(), *readers]
    return PaddedNetwork(padded.albert, readers, has_choices=has_choices).eval()


def _transpose_layers(network: nn.Module) -> None:
    """Replace every linear layer by one that stores its weight as [in, out]."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Affine(child.weight.T, child.bias))


def _is_whole(layers: nn.Module) -> bool:
    """Return whether a file had all parameters of these layers."""
    return not any(parameter.is_meta for parameter in layers.parameters())


# ---- its outputs ---------------------------------------------------------------------


class Reader(nn.Module):
    """Computes the outputs `names` from the last states, (sequences, length, hidden),
    mask and segments, (sequences, length); `shortest` is the smallest length that it
    can read.

    Padding must not change any value that is used.
    """

    names: tuple[str, ...]
    shortest = 1

    def forward(
        self, hidden: Tensor, mask: Tensor, segments: Tensor
    ) -> tuple[Tensor, ...]:
        raise NotImplementedError


class States(Reader):
    """The last states themselves."""

    names = ("last_hidden_state",)

    def forward(
        self, hidden: Tensor, _mask: Tensor, _segments: Tensor
    ) -> tuple[Tensor, ...]:
        return (hidden,)


class Pooled(Reader):
    """The pooled [CLS] or, with a classifier, its logits."""

    def __init__(
        self, name: str, pooler: nn.Module, classifier: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.names = (name,)
        self.pooler = pooler
        self.classifier = nn.Identity() if classifier is None else classifier

    def forward(
        self, hidden: Tensor, _mask: Tensor, _segments: Tensor
    ) -> tuple[Tensor, ...]:
        pooled = torch.tanh(self.pooler(hidden[:, 0]))  # (sequences, hidden)
        return (self.classifier(pooled),)


class MaskedLM(Reader):
    """The scores of every word at every position."""

    names = ("prediction_logits",)

    def __init__(self, head: MaskedLMHead, words: nn.Embedding) -> None:
        super().__init__()
        self.head = head
        # the encoder's: as a submodule of this one, too, it would be stored twice
        self._words = (words,)

    def forward(
        self, hidden: Tensor, _mask: Tensor, _segments: Tensor
    ) -> tuple[Tensor, ...]:
        head = self.head
        # (sequences, length, embed)
        embedded = head.norm(head.activation(head.dense(hidden)))
        (words,) = self._words
        return (embedded @ words.weight.T + head.bias,)  # (sequences, length, vocab)


class TextLogits(Reader):
    """The logits of a head on the vectors of one or two texts."""

    names = ("logits",)

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, hidden: Tensor, mask: Tensor, segments: Tensor
    ) -> tuple[Tensor, ...]:
        # 1 for the tokens of each text, 0 elsewhere: (sequences, length)
        is_second = mask * segments.clamp(max=1)
        is_first = mask - is_second
        # sums instead of means: `vector_rows` normalizes them
        first = (hidden * is_first.unsqueeze(-1)).sum(1)  # (sequences, hidden)
        second = (hidden * is_second.unsqueeze(-1)).sum(1)
        rows = vector_rows(first, second, is_second.amax(1, keepdim=True))
        return (self.layer(rows),)


class TokenLogits(Reader):
    """The logits of every token: one output, or one for each end of a span."""

    def __init__(self, names: tuple[str, ...], layer: nn.Module) -> None:
        super().__init__()
        self.names = names
        self.layer = layer

    def forward(
        self, hidden: Tensor, mask: Tensor, _segments: Tensor
    ) -> tuple[Tensor, ...]:
        logits: Tensor = self.layer(hidden)  # (sequences, length, outputs)
        if len(self.names) == 1:
            return (logits,)
        # no span starts or ends on padding
        return logits.masked_fill(mask[..., None] == 0, NEVER).unbind(-1)


class Spans(Reader):
    """The official SQuAD 2.0 beam: log-probabilities of starts, and of ends for the
    best.
    """

    names = ("start_logits", "start_top_index", "end_logits", "no_answer_logits")
    shortest = NUM_STARTS

    def __init__(self, head: ConditionalSpanHead) -> None:
        super().__init__()
        self.head = SplitSpanHead(head)

    def forward(
        self, hidden: Tensor, mask: Tensor, segments: Tensor
    ) -> tuple[Tensor, ...]:
        # zeros on padding: matters if fewer than five starts are allowed
        real = hidden * mask.unsqueeze(-1)  # (sequences, length, hidden)
        spans: tuple[Tensor, ...] = self.head(
            real, allowed_positions(mask, segments), NUM_STARTS
        )
        return spans


class SplitSpanHead(ConditionalSpanHead):
    """The head with its layer for ends, which reads a token and a start, as two layers:
    each product has a constant weight.
    """

    def __init__(self, head: ConditionalSpanHead) -> None:
        nn.Module.__init__(self)
        self.start = head.start
        self.end_norm = head.end_norm
        self.end = head.end
        self.answer_hidden = head.answer_hidden
        self.answer = head.answer
        self.dropout = nn.Identity()
        # W [token; start] = W_token token + W_start start: the product with the tokens
        # is computed once for all starts. Cloned, because torch.export.save warns of
        # views.
        for_token, for_start = head.end_hidden.weight.chunk(2, dim=0)
        self.of_token = Affine(for_token.clone(), head.end_hidden.bias)
        self.of_start = Affine(for_start.clone(), None)

    def end_token(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.of_token(hidden)
        return scores

    def end_start(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.of_start(hidden)
        return scores


def allowed_positions(mask: Tensor, segments: Tensor) -> Tensor:
    """Return where a span may lie, (batch, length): on [CLS], or in segment 1 before
    its [SEP].
    """
    column = torch.arange(mask.shape[1], device=mask.device)  # (length,)
    last = mask.sum(-1, keepdim=True) - 1  # (batch, 1), the place of the last [SEP]
    return (column == 0) | ((segments == 1) & (column < last))


# ---- which outputs a network has -----------------------------------------------------


def _encoder_readers(albert: Albert) -> list[Reader]:
    """Return the readers of an encoder without a head."""
    pooler = _whole_pooler(albert)
    if pooler is None:
        return [States()]
    return [States(), Pooled("pooler_output", pooler)]


def _pretraining_readers(
    network: AlbertForPretraining, *, has_order: bool
) -> list[Reader]:
    """Return the readers of the pretraining heads that the file has; with `has_order`,
    also of sentence order.
    """
    readers = list[Reader]()
    if _is_whole(network.masked_lm):
        readers.append(MaskedLM(network.masked_lm, network.albert.embedding.word))
    pooler = _whole_pooler(network.albert)
    if not has_order or pooler is None or "sentence_order" not in network.heads:
        return readers
    if _is_whole(network.sentence_order):
        readers.append(Pooled("sop_logits", pooler, network.sentence_order))
    return readers


def _whole_pooler(albert: Albert) -> nn.Module | None:
    """Return the pooler; None if there is none, or none in the file."""
    pooler = albert.pooler
    return pooler if pooler is not None and _is_whole(pooler) else None


def _task_reader(network: AlbertForTask) -> Reader:
    """Return the reader of a task head."""
    head = network.head
    if isinstance(head, ConditionalSpanHead):
        return Spans(head)
    if isinstance(head, VectorHead):
        return TextLogits(head.dense)
    if not isinstance(head, LinearHead):  # of a plug-in, with other layers
        raise LitebertError(
            "LB-470",
            f"a {network.head_config.kind} head cannot be exported",
            next="use the model with litebert, or export its encoder",
        )
    if network.albert.pooler is not None:
        return Pooled("logits", network.albert.pooler, head.dense)
    return TokenLogits(network.head_config.record.logits, head.dense)
