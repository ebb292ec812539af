"""The network on padded rectangles, which exporters can trace: no ragged batch, no control flow.

Every block is prepared once and applied at its steps, so that a weight is one constant however often it is used.
Weights are stored as [in, out], so that each product has a constant operand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from litebert.config import ATTENTION_KINDS
from litebert.errors import LitebertError
from litebert.files import require_new, write_bytes
from litebert.folder.model import load_model
from litebert.nn import Albert, AlbertForPretraining, AlbertForTask, Network
from litebert.nn.heads import LinearHead, MaskedLMHead
from litebert.nn.model import AttentionBlock, FeedForwardBlock
from litebert.tasks.kinds.family import NEVER
from litebert.tasks.kinds.spans import ConditionalSpanHead, conditional_spans
from litebert.tasks.kinds.text import VectorHead, vector_rows
from litebert.tokenizer import Tokenizer

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NUM_STARTS = 5  # likeliest starts whose ends the graph scores (official flag start_n_top)
ENCODER_ONLY = "none"
_COMPANIONS = ("config.json", "spiece.model", "vocab.txt", "tokenizer.json", "tokenizer_config.json")


# --- the source of an export, a model folder, and its target ---------------------------------------------------------


@dataclass(frozen=True)
class SourceModel:
    """A loaded model, and the same weights for padded rectangles; `head` names its outputs."""

    head: str
    network: Network
    padded: PaddedNetwork
    tokenizer: Tokenizer


def open_source(folder: Path, *, head: str | None = None, has_states: bool = False) -> SourceModel:
    """Load a model folder to export it with its own head, or without one (`head="none"`).

    `has_states` adds the last hidden states to the outputs of the head.
    """
    loaded = load_model(folder)
    network, attention = loaded.network, loaded.network.config.attention
    own = network.head_config.kind if isinstance(network, AlbertForTask) else "pretraining"
    if not ATTENTION_KINDS[attention].is_exported:
        next_step = "use the model in Python or with the litebert commands"
        raise LitebertError("LB-470", f"attention {attention} cannot be exported", next=next_step)
    if head not in (None, own, ENCODER_ONLY):
        expected = f"{own}, or none for the encoder alone"
        raise LitebertError("LB-750", f"{folder} has no head {head}", expected=expected, next="omit --head")
    rectangle = padded(network, missing=loaded.missing, has_head=head != ENCODER_ONLY, has_states=has_states)
    return SourceModel(head or own, network, rectangle, Tokenizer.load(folder))


def require_free(output: Path, *, suffix: str, source: Path) -> None:
    """Refuse an output that exists, or that would lie beside another model's files."""
    require_new(output, force=None)
    differing = [
        beside
        for name in _COMPANIONS
        if (beside := output.parent / name).exists() and (source / name).is_file()
        if beside.read_bytes() != (source / name).read_bytes()
    ]
    if output.suffix != suffix or differing:
        what, found = f"{output} cannot be the output", f"{differing[0]} of another model" if differing else None
        elsewhere = f"choose another path, for instance {output.parent / output.stem}/model{suffix}"
        expected = f"a file that ends in {suffix}, in a folder of its own"
        raise LitebertError("LB-751", what, received=found, expected=expected, next=elsewhere)


def write_export(output: Path, data: bytes, *, source: Path) -> None:
    """Write a file with config.json and the tokenizer beside it, so that the folder is complete."""
    for name in _COMPANIONS:
        if (source / name).is_file() and not (output.parent / name).exists():
            write_bytes(output.parent / name, (source / name).read_bytes())
    write_bytes(output, data)


# --- the network -----------------------------------------------------------------------------------------------------


class PaddedNetwork(nn.Module):
    """Map ids, mask (1 = a token) and segments, int64 (batch, length), to named outputs.

    Padding is on the right and does not change outputs. `lengths` are those it can read. Of choices, (batch, choices,
    length), each is a sequence of its own, and the logits are (batch, choices).
    """

    def __init__(self, encoder: PaddedEncoder, readers: Sequence[Reader], *, has_choices: bool = False) -> None:
        super().__init__()
        self.encoder, self.readers = encoder, nn.ModuleList(readers)
        self.axes = ("batch", "choices", "length") if has_choices else ("batch", "length")
        self.lengths = range(max(reader.shortest for reader in readers), 1 + len(encoder.position))
        self.output_names = tuple(name for reader in readers for name in reader.output_names)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        has_choices = len(self.axes) == 3  # known when the network is traced
        rows = (input_ids, attention_mask, token_type_ids)
        ids, mask, segments = (x.flatten(0, 1) if has_choices else x for x in rows)
        hidden = self.encoder(ids, mask, segments)  # (batch, length, hidden)
        found = [output for reader in self.readers for output in reader(hidden, mask, segments)]
        return tuple(x.reshape(input_ids.shape[:2]) if has_choices else x for x in found)


class Affine(nn.Module):
    """x W + b, with W as [in, out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().T.contiguous())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    @classmethod
    def of(cls, linear: nn.Linear) -> Affine:
        return cls(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


class PaddedEncoder(nn.Module):
    """Embeddings and the unrolled depth plan."""

    def __init__(self, albert: Albert) -> None:
        super().__init__()
        embedding, projection = albert.embedding, albert.embedding.projection
        self.plan = albert.plan
        self.word, self.segment = embedding.word, embedding.segment
        self.position, self.norm = embedding.position.weight, embedding.norm
        self.projection = Affine.of(projection) if isinstance(projection, nn.Linear) else projection
        self.attention = nn.ModuleList(_Attention(b) for b in albert.attention)
        self.feed_forward = nn.ModuleList(_FeedForward(b) for b in albert.feed_forward)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        summed = self.word(ids) + self.position[: ids.shape[1]] + self.segment(segments)  # (batch, length, embedding)
        hidden: Tensor = self.projection(self.norm(summed))
        penalty = (1 - mask[:, None, None].to(hidden.dtype)) * NEVER  # (batch, 1, 1, length)
        for step in self.plan:
            hidden = self.attention[step.attention](hidden, penalty)
            hidden = self.feed_forward[step.feed_forward](hidden)
        return hidden


class _Attention(nn.Module):
    """LN(x + W_o attention(x)); query, key and value in one product, with 1 / sqrt(head_size) in the weights."""

    def __init__(self, block: AttentionBlock) -> None:
        super().__init__()
        self.heads = block.heads
        hidden, scale = block.output.in_features, self.heads[1] ** -0.5
        layers = (block.query, block.key, block.value)
        weight, bias = torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])
        rows = (torch.arange(3 * hidden, device=bias.device) < hidden).to(bias.dtype)  # those of the query
        scales = 1 + rows * (scale - 1)
        self.fused = Affine(weight * scales[:, None], bias * scales)
        self.output, self.norm = Affine.of(block.output), block.norm

    def forward(self, x: Tensor, penalty: Tensor) -> Tensor:
        projected = self.fused(x).unflatten(-1, (3, *self.heads))  # (batch, length, 3, heads, head_size)
        query, key, value = (part.transpose(1, 2) for part in projected.unbind(-3))
        scores = query @ key.transpose(-1, -2) + penalty  # (batch, heads, length, length)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(-2)  # (batch, length, hidden)
        normed: Tensor = self.norm(x + self.output(mixed))
        return normed


class _FeedForward(nn.Module):
    """LN(x + W_2 act(W_1 x))."""

    def __init__(self, block: FeedForwardBlock) -> None:
        super().__init__()
        self.intermediate, self.activation = Affine.of(block.intermediate), block.activation
        self.output, self.norm = Affine.of(block.output), block.norm

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + self.output(self.activation(self.intermediate(x))))
        return normed


# --- its heads: one small module for each kind of output -------------------------------------------------------------


def padded(
    network: Network, *, missing: Collection[str] = (), has_head: bool = True, has_states: bool = False
) -> PaddedNetwork:
    """Return the network for padded rectangles, without the parameters that are `missing` from its file.

    Without a head its outputs are `last_hidden_state`, and `pooler_output` if there is a pooler; `has_states` adds
    `last_hidden_state` to the outputs of a head.
    """
    lacking = {".".join(name.split(".")[:2]) for name in missing} | {name.split(".")[0] for name in missing}
    pooler, has_choices = None if "albert.pooler" in lacking else network.albert.pooler, False
    readers: list[Reader] = []
    if has_head and isinstance(network, AlbertForPretraining):
        if "masked_lm" not in lacking:
            readers.append(_MaskedLM(network.masked_lm, network.albert.embedding.word))
        if pooler is not None and "sentence_order" not in lacking:
            readers.append(_Pooled(pooler, cast(nn.Linear, network.sentence_order[0]), "sop_logits"))
    elif has_head and isinstance(network, AlbertForTask):
        module, record = network.head, network.head_config.record
        has_choices = record.has_choices
        if isinstance(module, ConditionalSpanHead):
            readers.append(_ConditionalSpanLogits(module))
        elif isinstance(module, VectorHead):
            readers.append(_VectorLogits(module.dense))
        else:
            assert isinstance(module, LinearHead)
            pooled = _Pooled(pooler, module.dense, "logits") if pooler else None
            readers.append(pooled or _TokenLogits(module.dense, record.logits))
    if not readers:
        readers = [Reader(), *([] if pooler is None else [_Pooled(pooler)])]
    elif has_states:
        readers.insert(0, Reader())
    return PaddedNetwork(PaddedEncoder(network.albert), readers, has_choices=has_choices).eval()


class Reader(nn.Module):
    """Compute the outputs `output_names` from hidden states, mask and segments; this one gives the states."""

    output_names: tuple[str, ...] = ("last_hidden_state",)
    shortest = 1  # the least length that it can read

    def forward(self, hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        return (hidden,)


class _Pooled(Reader):
    """The pooled [CLS], or its logits where there is a classifier."""

    def __init__(self, pooler: nn.Linear, classifier: nn.Linear | None = None, name: str = "pooler_output") -> None:
        super().__init__()
        self.pooler, self.output_names = Affine.of(pooler), (name,)
        self.classifier = Affine.of(classifier) if classifier else nn.Identity()

    def forward(self, hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        return (self.classifier(torch.tanh(self.pooler(hidden[:, 0]))),)


class _MaskedLM(Reader):
    """Scores of every word at every position; the word table is the encoder's own."""

    output_names = ("prediction_logits",)

    def __init__(self, head: MaskedLMHead, words: nn.Embedding) -> None:
        super().__init__()
        self.dense, self.norm, self.activation = Affine.of(head.dense), head.norm, head.activation
        self.table, self.bias = words.weight, head.bias

    def forward(self, hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        embedded = self.norm(self.activation(self.dense(hidden)))
        return (embedded @ self.table.T + self.bias,)  # (batch, length, vocab)


class _TokenLogits(Reader):
    """Logits of every token; of spans, starts and ends are an output each, and padding can be neither."""

    def __init__(self, dense: nn.Linear, names: tuple[str, ...] = ("logits",)) -> None:
        super().__init__()
        self.dense, self.output_names = Affine.of(dense), names

    def forward(self, hidden: Tensor, mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        logits: Tensor = self.dense(hidden)
        return (logits,) if len(self.output_names) == 1 else logits.masked_fill(mask[..., None] == 0, NEVER).unbind(-1)


class _VectorLogits(_TokenLogits):
    """Logits of a text or a pair from the means of its tokens."""

    def forward(self, hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        is_second = mask * segments.clamp(max=1)
        first, second = ((hidden * chosen.unsqueeze(-1)).sum(1) for chosen in (mask - is_second, is_second))
        return (self.dense(vector_rows(first, second, is_second.amax(1, keepdim=True))),)


class _ConditionalSpanLogits(Reader):
    """The official SQuAD 2.0 beam: log-probabilities of starts, and of ends after the best of them."""

    output_names = ("start_logits", "start_top_index", "end_logits", "no_answer_logits")
    shortest = NUM_STARTS

    def __init__(self, head: ConditionalSpanHead) -> None:
        super().__init__()
        for_token, for_start = head.end_hidden.weight.chunk(2, dim=1)
        self.start, self.end, self.end_norm = Affine.of(head.start), Affine.of(head.end), head.end_norm
        self.end_token, self.end_start = Affine(for_token, head.end_hidden.bias), Affine(for_start, None)
        self.answer_hidden, self.answer = Affine.of(head.answer_hidden), Affine.of(head.answer)
        self.dropout = nn.Identity()

    def forward(self, hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        hidden = hidden * mask.unsqueeze(-1)  # where fewer than five starts are allowed
        return tuple(conditional_spans(self, hidden, allowed_positions(mask, segments), NUM_STARTS))


def allowed_positions(mask: Tensor, segments: Tensor) -> Tensor:
    """Return where a span may be, (batch, length): on [CLS], or in segment 1 before its [SEP]."""
    column = torch.arange(mask.shape[1], device=mask.device)
    last = mask.sum(-1, keepdim=True) - 1
    return (column == 0) | ((segments == 1) & (column < last))
