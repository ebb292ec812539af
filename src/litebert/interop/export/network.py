"""The network on padded rectangles, which exporters can trace: no ragged batch, no control flow.

Every block is prepared once and applied at its steps, so that a weight is one constant however often it is used.
Weights are stored as [in, out], so that each product has a constant operand.
"""

from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from litebert.errors import LitebertError
from litebert.nn import Albert, AlbertForPretraining, AlbertForTask, AttentionBlock, LinearHead, Network
from litebert.tasks.kinds.family import NEVER
from litebert.tasks.kinds.spans import ConditionalSpanHead
from litebert.tasks.kinds.text import VectorHead, vector_rows

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NUM_STARTS = 5  # likeliest starts whose ends the graph scores (official flag start_n_top)


# --- the network -----------------------------------------------------------------------------------------------------


class PaddedNetwork(nn.Module):
    """Map ids, mask (1 = a token) and segments, int64 (batch, length), to named outputs.

    Padding is on the right and does not change outputs. `lengths` are those it can read. Of choices, (batch, choices,
    length), each is a sequence of its own, and the logits are (batch, choices).
    """

    def __init__(self, albert: Albert, readers: "list[Reader]", *, has_choices: bool = False) -> None:
        super().__init__()
        self.plan, self.embedding = albert.plan, albert.embedding
        self.attention = nn.ModuleList(PaddedAttention(block) for block in albert.attention)
        self.feed_forward, self.readers = albert.feed_forward, nn.ModuleList(readers)
        self.axes = ("batch", "choices", "length") if has_choices else ("batch", "length")
        self.lengths = range(max(reader.shortest for reader in readers), 1 + len(self.embedding.position.weight))
        self.output_names = tuple(name for reader in readers for name in reader.names)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        ids, mask, segments = (x.flatten(0, -2) for x in (input_ids, attention_mask, token_type_ids))
        embed = self.embedding
        summed = embed.word(ids) + embed.position.weight[: ids.shape[1]] + embed.segment(segments)
        hidden: Tensor = embed.projection(embed.norm(summed))  # (batch, length, hidden)
        penalty = (1 - mask[:, None, None].to(hidden.dtype)) * NEVER  # (batch, 1, 1, length)
        for step in self.plan:
            hidden = self.attention[step.attention](hidden, penalty)
            hidden = self.feed_forward[step.feed_forward](hidden)
        found = self.read(hidden, mask, segments)
        return tuple(x.reshape(input_ids.shape[:2]) for x in found) if "choices" in self.axes else found

    def read(self, hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for the last states, (batch, length, hidden)."""
        return tuple(output for reader in self.readers for output in reader(hidden, mask, segments))


class PaddedAttention(nn.Module):
    """LN(x + W_o attention(x)); query, key and value in one product, with 1 / sqrt(head_size) in the weights."""

    def __init__(self, block: AttentionBlock) -> None:
        super().__init__()
        self.heads, self.output, self.norm = block.heads, block.output, block.norm
        scale = self.heads[1] ** -0.5
        self.fused = Affine(
            torch.cat([block.query.weight * scale, block.key.weight, block.value.weight], dim=1),  # [in, 3 out]
            torch.cat([block.query.bias * scale, block.key.bias, block.value.bias]),
        )

    def forward(self, x: Tensor, penalty: Tensor) -> Tensor:
        projected = self.fused(x).unflatten(-1, (3, *self.heads))  # (batch, length, 3, heads, head_size)
        query, key, value = (part.transpose(1, 2) for part in projected.unbind(-3))
        scores = query @ key.transpose(-1, -2) + penalty  # (batch, heads, length, length)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(-2)  # (batch, length, hidden)
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


def padded(
    network: Network, *, missing: Collection[str] = (), has_head: bool = True, has_states: bool = False
) -> PaddedNetwork:
    """Return the network for padded rectangles, without the parameters that are `missing` from its file.

    Without a head its outputs are `last_hidden_state`, and `pooler_output` if there is a pooler; `has_states` adds
    `last_hidden_state` to the outputs of a head.
    """
    network = deepcopy(network).eval()
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Affine(child.weight.T, child.bias))
    lacks = {
        part for part in ("masked_lm", "sentence_order", "albert.pooler") if any(n.startswith(part) for n in missing)
    }
    pooler = None if "albert.pooler" in lacks else network.albert.pooler
    readers, has_choices = list[Reader](), False
    if has_head and isinstance(network, AlbertForTask):
        readers, has_choices = [_task_head(network)], network.head_config.record.verb == "choose"
    elif has_head and isinstance(network, AlbertForPretraining):
        if "masked_lm" not in lacks:
            readers.append(_masked_lm(network))
        if pooler is not None and "sentence_order" not in lacks:
            readers.append(_pooled("sop_logits", pooler, network.sentence_order))
    states = Reader(("last_hidden_state",), lambda hidden, _mask, _segments: (hidden,))
    if not readers:
        readers = [states, *([] if pooler is None else [_pooled("pooler_output", pooler)])]
    elif has_states:
        readers.insert(0, states)
    return PaddedNetwork(network.albert, readers, has_choices=has_choices).eval()


# --- its outputs -----------------------------------------------------------------------------------------------------

Compute: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
"""(hidden (batch, length, hidden), mask, segments) -> outputs, of which padding may change nothing that is used."""


class Reader(nn.Module):
    """Compute the outputs `names` with `layers` of the network; `shortest` is the least length that it can read."""

    def __init__(self, names: tuple[str, ...], compute: Compute, *layers: nn.Module, shortest: int = 1) -> None:
        super().__init__()
        self.names, self.compute, self.layers, self.shortest = names, compute, nn.ModuleList(layers), shortest

    def forward(self, hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        return self.compute(hidden, mask, segments)


def _pooled(name: str, pooler: nn.Module, *classifier: nn.Module) -> Reader:
    """The pooled [CLS], or its logits where there is a classifier."""
    layers = nn.Sequential(pooler, nn.Tanh(), *classifier)
    return Reader((name,), lambda hidden, _mask, _segments: (layers(hidden[:, 0]),), layers)


def _masked_lm(network: AlbertForPretraining) -> Reader:
    """Scores of every word at every position; the word table is the encoder's own."""
    head, words = network.masked_lm, network.albert.embedding.word

    def compute(hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        embedded = head.norm(head.activation(head.dense(hidden)))
        return (embedded @ words.weight.T + head.bias,)  # (batch, length, vocab)

    return Reader(("prediction_logits",), compute, head)


def _task_head(network: AlbertForTask) -> Reader:
    head, record = network.head, network.head_config.record
    if isinstance(head, ConditionalSpanHead):
        return _conditional_spans(head)
    if not isinstance(head, LinearHead | VectorHead):  # one from outside, with layers of its own
        what = f"a {record.kind} head cannot be exported"
        raise LitebertError("LB-470", what, next="use the model with litebert, or export its encoder")
    layer = head.dense
    if network.albert.pooler is not None:
        return _pooled("logits", network.albert.pooler, layer)

    def of_texts(hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        is_second = mask * segments.clamp(max=1)
        first, second = ((hidden * chosen.unsqueeze(-1)).sum(1) for chosen in (mask - is_second, is_second))
        return (layer(vector_rows(first, second, is_second.amax(1, keepdim=True))),)

    def of_tokens(hidden: Tensor, mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        logits: Tensor = layer(hidden)
        if len(record.logits) == 1:
            return (logits,)
        return logits.masked_fill(mask[..., None] == 0, NEVER).unbind(-1)  # padding starts and ends no span

    return Reader(record.logits, of_texts if isinstance(head, VectorHead) else of_tokens, layer)


def _conditional_spans(head: Any) -> Reader:
    """The official SQuAD 2.0 beam: log-probabilities of starts, and of ends after the best of them."""
    for_token, for_start = head.end_hidden.weight.chunk(2, dim=0)
    layers: Any = nn.Module()  # those of the head, and both halves of one of them
    layers.start, layers.end_norm, layers.end = head.start, head.end_norm, head.end
    layers.end_token, layers.end_start = Affine(for_token, head.end_hidden.bias), Affine(for_start, None)
    layers.answer_hidden, layers.answer, layers.dropout = head.answer_hidden, head.answer, nn.Identity()

    def compute(hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        hidden = hidden * mask.unsqueeze(-1)  # where fewer than five starts are allowed
        return ConditionalSpanHead.forward(layers, hidden, allowed_positions(mask, segments), NUM_STARTS)

    names = ("start_logits", "start_top_index", "end_logits", "no_answer_logits")
    return Reader(names, compute, layers, shortest=NUM_STARTS)


def allowed_positions(mask: Tensor, segments: Tensor) -> Tensor:
    """Return where a span may be, (batch, length): on [CLS], or in segment 1 before its [SEP]."""
    column = torch.arange(mask.shape[1], device=mask.device)
    last = mask.sum(-1, keepdim=True) - 1
    return (column == 0) | ((segments == 1) & (column < last))
