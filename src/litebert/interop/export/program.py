"""A form of the network that exporters can trace, its export as a torch program, and a
check that all exports pass.

The network works on padded rectangles: no ragged batches, no control flow. Every block
is prepared once and applied at each of its steps, so that a weight is one constant
however often it is used. Weights are stored as [in, out], so that each product has a
constant operand.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from litebert.errors import LitebertError
from litebert.files import require_new, write_bytes
from litebert.folder import read_folder
from litebert.folder.config import refusal_of
from litebert.hub import model_files
from litebert.interop import ExportReport, Parity
from litebert.nn import (
    USUAL_HEADS,
    Albert,
    AlbertForPretraining,
    AlbertForTask,
    AttentionBlock,
    Batch,
    LinearHead,
    Network,
)
from litebert.tasks.kinds.family import NEVER, frame_ids
from litebert.tasks.kinds.spans import ConditionalSpanHead
from litebert.tasks.kinds.text import VectorHead, vector_rows
from litebert.tokenizer import Tokenizer

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# the graph scores the ends of this many likeliest starts (official flag start_n_top)
NUM_STARTS = 5
Inputs: TypeAlias = dict[str, NDArray[np.int64]]
Outputs: TypeAlias = Mapping[str, NDArray[np.float32]]
RunBatch: TypeAlias = Callable[[Inputs], Outputs]

# largest difference allowed between runtimes in float32, for numbers up to one
_EQUAL = 1e-4
# Eight bits are refused if both fail: correlation below this, and difference above this
# share of the largest output (outputs that hardly vary may be close but uncorrelated).
_LEAST_CORRELATION = 0.9
_LARGEST_SHARE = 0.1
_NUM_CHOICES = 4
_BANNED = -1e29  # a value below this means "never" and is not compared
# their last axis is not a feature axis
_OVER_POSITIONS = ("start_logits", "end_logits", "no_answer_logits")


# --- the network ----------------------------------------------------------------------


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
        self.attention = nn.ModuleList(
            PaddedAttention(block) for block in albert.attention
        )
        self.feed_forward = albert.feed_forward
        self.readers = nn.ModuleList(readers)
        self.axes = (
            ("batch", "choices", "length") if has_choices else ("batch", "length")
        )
        self.lengths = range(
            max(reader.shortest for reader in readers),
            1 + len(self.embedding.position.weight),
        )
        self.output_names = tuple(name for reader in readers for name in reader.names)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, ...]:
        ids, mask, segments = (
            x.flatten(0, -2) for x in (input_ids, attention_mask, token_type_ids)
        )
        embed = self.embedding
        summed = (
            embed.word(ids)
            + embed.position.weight[: ids.shape[1]]
            + embed.segment(segments)
        )
        hidden: Tensor = embed.projection(embed.norm(summed))  # (batch, length, hidden)
        # (batch, 1, 1, length)
        penalty = (1 - mask[:, None, None].to(hidden.dtype)) * NEVER
        for step in self.plan:
            hidden = self.attention[step.attention](hidden, penalty)
            hidden = self.feed_forward[step.feed_forward](hidden)
        found = self.read(hidden, mask, segments)
        return (
            tuple(x.reshape(input_ids.shape[:2]) for x in found)
            if "choices" in self.axes
            else found
        )

    def read(
        self, hidden: Tensor, mask: Tensor, segments: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the outputs for the last states, (batch, length, hidden)."""
        return tuple(
            output
            for reader in self.readers
            for output in reader(hidden, mask, segments)
        )


class PaddedAttention(nn.Module):
    """LN(x + W_o attention(x)), with query, key and value in one product, and 1 /
    sqrt(head_size) in the weights.
    """

    def __init__(self, block: AttentionBlock) -> None:
        super().__init__()
        self.heads = block.heads
        self.output = block.output
        self.norm = block.norm
        scale = self.heads[1] ** -0.5
        self.fused = Affine(
            # [in, 3 out]
            torch.cat(
                [block.query.weight * scale, block.key.weight, block.value.weight],
                dim=1,
            ),
            torch.cat([block.query.bias * scale, block.key.bias, block.value.bias]),
        )

    def forward(self, x: Tensor, penalty: Tensor) -> Tensor:
        # (batch, length, 3, heads, head_size)
        projected = self.fused(x).unflatten(-1, (3, *self.heads))
        query, key, value = (part.transpose(1, 2) for part in projected.unbind(-3))
        # (batch, heads, length, length)
        scores = query @ key.transpose(-1, -2) + penalty
        # (batch, length, hidden)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(-2)
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
    network = deepcopy(network).eval()
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Affine(child.weight.T, child.bias))

    def is_whole(layers: nn.Module | None) -> bool:
        return layers is not None and not any(
            parameter.is_meta for parameter in layers.parameters()
        )

    pooler = network.albert.pooler if is_whole(network.albert.pooler) else None
    readers = list[Reader]()
    has_choices = False
    if has_head and isinstance(network, AlbertForTask):
        readers = [_task_head(network)]
        kind = network.head_config.task_kind
        has_choices = kind is not None and kind.has_several_sequences
    elif has_head and isinstance(network, AlbertForPretraining):
        if is_whole(network.masked_lm):
            readers.append(_masked_lm(network))
        order = network.sentence_order if "sentence_order" in network.heads else None
        if pooler is not None and is_whole(order) and not has_states:
            readers.append(_pooled("sop_logits", pooler, network.sentence_order))
    states = Reader(("last_hidden_state",), lambda hidden, _mask, _segments: (hidden,))
    if not readers:
        readers = [
            states,
            *([] if pooler is None else [_pooled("pooler_output", pooler)]),
        ]
    elif has_states:
        readers.insert(0, states)
    return PaddedNetwork(network.albert, readers, has_choices=has_choices).eval()


# --- its outputs ----------------------------------------------------------------------

Compute: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
"""(hidden (batch, length, hidden), mask, segments) -> outputs; padding must not change
any value that is used.
"""


class Reader(nn.Module):
    """Computes the outputs `names` with `layers` of the network; `shortest` is the
    smallest length it can read.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        compute: Compute,
        *layers: nn.Module,
        shortest: int = 1,
    ) -> None:
        super().__init__()
        self.names = names
        self.compute = compute
        self.layers = nn.ModuleList(layers)
        self.shortest = shortest

    def forward(
        self, hidden: Tensor, mask: Tensor, segments: Tensor
    ) -> tuple[Tensor, ...]:
        return self.compute(hidden, mask, segments)


def _pooled(name: str, pooler: nn.Module, *classifier: nn.Module) -> Reader:
    """Return the reader of the pooled [CLS] or, with a classifier, of its logits."""
    layers = nn.Sequential(pooler, nn.Tanh(), *classifier)
    return Reader(
        (name,), lambda hidden, _mask, _segments: (layers(hidden[:, 0]),), layers
    )


def _masked_lm(network: AlbertForPretraining) -> Reader:
    """Return the reader that scores every word at every position; it shares the
    encoder's word table.
    """
    head = network.masked_lm
    words = network.albert.embedding.word

    def compute(hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        embedded = head.norm(head.activation(head.dense(hidden)))
        return (embedded @ words.weight.T + head.bias,)  # (batch, length, vocab)

    return Reader(("prediction_logits",), compute, head)


def _task_head(network: AlbertForTask) -> Reader:
    head = network.head
    record = network.head_config.record
    if isinstance(head, ConditionalSpanHead):
        return _conditional_spans(head)
    # a head from outside, with other layers
    if not isinstance(head, LinearHead | VectorHead):
        what = f"a {network.head_config.kind} head cannot be exported"
        raise LitebertError(
            "LB-470", what, next="use the model with litebert, or export its encoder"
        )
    layer = head.dense
    if network.albert.pooler is not None:
        return _pooled("logits", network.albert.pooler, layer)

    def of_texts(hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        is_second = mask * segments.clamp(max=1)
        first, second = (
            (hidden * chosen.unsqueeze(-1)).sum(1)
            for chosen in (mask - is_second, is_second)
        )
        return (layer(vector_rows(first, second, is_second.amax(1, keepdim=True))),)

    def of_tokens(
        hidden: Tensor, mask: Tensor, _segments: Tensor
    ) -> tuple[Tensor, ...]:
        logits: Tensor = layer(hidden)
        if len(record.logits) == 1:
            return (logits,)
        # no span starts or ends on padding
        return logits.masked_fill(mask[..., None] == 0, NEVER).unbind(-1)

    return Reader(
        record.logits, of_texts if isinstance(head, VectorHead) else of_tokens, layer
    )


def _conditional_spans(head: Any) -> Reader:
    """Return the reader of the official SQuAD 2.0 beam: log-probabilities of starts,
    and of ends for the best.
    """
    # torch.export.save warns of views
    for_token, for_start = map(torch.clone, head.end_hidden.weight.chunk(2, dim=0))
    layers: Any = nn.Module()  # the head's layers, one of them as two halves
    layers.start = head.start
    layers.end_norm = head.end_norm
    layers.end = head.end
    layers.end_token = Affine(for_token, head.end_hidden.bias)
    layers.end_start = Affine(for_start, None)
    layers.answer_hidden = head.answer_hidden
    layers.answer = head.answer
    layers.dropout = nn.Identity()

    def compute(hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        # matters if fewer than five starts are allowed
        hidden = hidden * mask.unsqueeze(-1)
        return ConditionalSpanHead.forward(
            layers, hidden, allowed_positions(mask, segments), NUM_STARTS
        )

    names = ("start_logits", "start_top_index", "end_logits", "no_answer_logits")
    return Reader(names, compute, layers, shortest=NUM_STARTS)


def allowed_positions(mask: Tensor, segments: Tensor) -> Tensor:
    """Return where a span may lie, (batch, length): on [CLS], or in segment 1 before
    its [SEP].
    """
    column = torch.arange(mask.shape[1], device=mask.device)
    last = mask.sum(-1, keepdim=True) - 1
    return (column == 0) | ((segments == 1) & (column < last))


# --- the source of an export, a model folder, and its target --------------------------


class SourceModel(NamedTuple):
    """A loaded model, and the same weights for padded rectangles."""

    network: Network
    padded: PaddedNetwork
    tokenizer: Tokenizer
    has_head: bool = True  # whether the outputs are those of its head


def open_source(
    folder: Path, *, has_head: bool = True, has_states: bool = False
) -> SourceModel:
    """Load a model folder to export, with its head or without; `has_states` adds hidden
    states to a head's outputs.
    """
    loaded = read_folder(folder)
    attention = loaded.network.config.attention
    if not loaded.network.config.has_full_attention:
        raise LitebertError(
            "LB-470",
            f"attention {attention} cannot be exported",
            next="use the model with litebert",
        )
    head = loaded.head
    refusal = refusal_of(head)
    added = sorted({*getattr(loaded.network, "heads", ())} - {*USUAL_HEADS})
    if has_head and added:
        raise LitebertError(
            "LB-477",
            f"the pretraining heads of {folder} cannot be exported",
            received=", ".join(added),
            expected=f"only {' and '.join(USUAL_HEADS)}",
            next="export its encoder, or use the model with litebert",
        )
    if has_head and head is not None and refusal:
        raise LitebertError(
            "LB-476",
            f"the answers of {folder} cannot be exported: {refusal}",
            received=str(head),
            next="use the model with litebert, or export its encoder",
        )
    rectangle = pad_network(loaded.network, has_head=has_head, has_states=has_states)
    return SourceModel(loaded.network, rectangle, loaded.require_tokenizer(), has_head)


def _is_of_model_alone(name: str) -> bool:
    """Return whether a file of a model folder is not for its exports: the weights of
    the network, their index, the card.
    """
    is_weights = "/" not in name and ".safetensors" in name
    return is_weights or name == "README.md"


def require_free(output: Path, *, suffix: str, source: Path) -> dict[Path, bytes]:
    """Check that an output is new and not next to another model; return the files that
    belong next to it.
    """
    require_new(output, force=None)
    beside = {
        output.parent / name: path.read_bytes()
        for name, path in model_files(source).items()
        if not _is_of_model_alone(name)
    }
    differing = [
        path
        for path, data in beside.items()
        if path.exists() and path.read_bytes() != data
    ]
    if output.suffix != suffix or differing:
        found = f"{differing[0]} of another model" if differing else None
        expected = (
            f"{output.parent / output.stem}/model{suffix}: a file that ends in"
            f" {suffix}, in its own folder"
        )
        raise LitebertError(
            "LB-751",
            f"{output} cannot be the output",
            received=found,
            expected=expected,
        )
    return beside


def write_beside(beside: Mapping[Path, bytes], output: Path, data: bytes) -> None:
    """Write an output, which must still be new, after the files that belong next to
    it.
    """
    for path, contents in beside.items():
        write_bytes(path, contents, force=None, accepts_same=True)
    write_bytes(output, data, force=None)


# --- a program of torch ---------------------------------------------------------------


def export_program(
    folder: Path, output: Path, *, has_head: bool = True
) -> ExportReport:
    """Write a model folder as a program for torch.export.load, for any batch size and
    length.

    It is loaded as a user would load it and compared with the network before anything
    is written.
    """
    beside = require_free(output, suffix=".pt2", source=folder)
    source = open_source(folder, has_head=has_head)
    names = source.padded.output_names
    buffer = io.BytesIO()
    torch.export.save(trace(source.padded), buffer)
    call = torch.export.load(io.BytesIO(buffer.getvalue())).module()

    def run(inputs: Inputs) -> Outputs:
        outputs = call(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        return {
            name: values.numpy() for name, values in zip(names, outputs, strict=True)
        }

    parity = require_near(run, source, output)
    write_beside(beside, output, buffer.getvalue())
    return ExportReport(output, names, output.stat().st_size, parity)


def trace(network: PaddedNetwork) -> ExportedProgram:
    """Trace the network once for all shapes."""
    sizes = {"batch": 2, "choices": 3, "length": min(8, network.lengths[-1])}
    example = tuple(
        torch.ones([sizes[axis] for axis in network.axes], dtype=torch.int64)
        for _ in INPUTS
    )
    with torch.no_grad(), quiet():
        program = torch.export.export(
            network, example, dynamic_shapes=dynamic_shapes(network), strict=False
        )
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # contains paths of this machine
    return program


def dynamic_shapes(network: PaddedNetwork) -> tuple[dict[int, Dim], ...]:
    """Make the axes of every input dynamic: any batch size, and all lengths with
    positions.
    """
    lengths = network.lengths
    dims = {
        "batch": Dim("batch"),
        "choices": Dim("choices"),
        "length": Dim("length", min=lengths[0], max=lengths[-1]),
    }
    return tuple({i: dims[axis] for i, axis in enumerate(network.axes)} for _ in INPUTS)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's warnings about itself, and its exporter's log of missing
    packages.
    """
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.setLevel(level)


# --- the check ------------------------------------------------------------------------


@torch.inference_mode()
def require_near(
    run: RunBatch, source: SourceModel, output: Path, *, is_int8: bool = False
) -> Parity:
    """Compare the outputs of an exported network on a few texts with the network's own;
    raise if they differ.
    """
    network = source.padded
    tokenizer = source.tokenizer
    lengths = source.padded.lengths

    # The texts as one padded batch: rows, or questions with their choices
    texts = (
        (files("litebert.interop.export") / "texts.tsv").read_text("utf-8").splitlines()
    )
    pairs = [
        [tokenizer.encode(text).ids for text in pair.split("\t")] for pair in texts
    ]
    rows = [frame_ids(tokenizer, *pair, max_length=lengths[-1]) for pair in pairs]
    batch = Batch.from_lists(
        [ids for ids, _ in rows], [segments for _, segments in rows]
    )
    width = max(lengths[0], *batch.lengths)
    columns = (batch.ids, torch.ones_like(batch.ids), batch.segments)
    # (batch, length)
    ids, mask, segments = (batch.to_padded(column, width=width) for column in columns)
    shape = (-1, _NUM_CHOICES, width) if "choices" in network.axes else (-1, width)
    outputs = run(
        {
            name: x.reshape(shape).numpy()
            for name, x in zip(INPUTS, (ids, mask, segments), strict=True)
        }
    )

    # The expected outputs, from the states of the ragged network; -inf where they
    # cannot be compared
    found = network.read(
        batch.to_padded(source.network.albert(batch), width=width), mask, segments
    )
    named = zip(network.output_names, found, strict=True)
    expected = {
        name: values.numpy().reshape(outputs[name].shape) for name, values in named
    }
    for name, values in expected.items():
        if name in ("last_hidden_state", "prediction_logits") or (
            name == "logits" and values.ndim == 3
        ):
            # outputs for each token; spans never lie on padding anyway
            values[mask.numpy() == 0] = -np.inf
    # among equally likely starts, others may be chosen, which have other ends
    if "start_top_index" in expected:
        differ = expected.pop("start_top_index") != outputs["start_top_index"]
        expected["end_logits"][differ] = -np.inf

    parity = compare(outputs, expected)
    largest = (
        _LARGEST_SHARE * parity.scale if is_int8 else _EQUAL * max(1.0, parity.scale)
    )
    if parity.max_difference <= largest or (
        is_int8 and parity.correlation >= _LEAST_CORRELATION
    ):
        return parity  # NaN is neither
    what = f"{output} was not written: its outputs are not the network's"
    limits = (
        f"differences below {largest:.2g}"
        + f", or a correlation of at least {_LEAST_CORRELATION}" * is_int8
    )
    again = (
        "pip install -U 'litebert[onnx]', or report this with the model's config.json"
    )
    next_step = (
        "omit --int8: this network needs more than eight bits" if is_int8 else again
    )
    raise LitebertError(
        "LB-755", what, received=parity, expected=limits, next=next_step
    )


def compare(outputs: Outputs, expected: Outputs) -> Parity:
    """Compare outputs with the expected ones, where these are real numbers."""
    differences = [0.0]
    scales = [0.0]
    correlations = [1.0]
    for name, ours in expected.items():
        is_real = ~(ours <= _BANNED)  # NaN is compared, and never equal
        if not is_real.any():  # only ends of other starts
            continue
        width = 1 if name in _OVER_POSITIONS else ours.shape[-1]
        one, other = (
            x[is_real].reshape(-1, width).astype(np.float64)
            for x in (ours, outputs[name])
        )
        with np.errstate(invalid="ignore"):  # infinite outputs
            differences.append(float(np.abs(one - other).max(initial=0)))
            scales.append(float(np.abs(one).max(initial=0)))
            # rounding: lets constants correlate with constants
            least = 1e-12 * float((one**2).sum()) + 1e-30
            one = one - one.mean(0)
            other = other - other.mean(0)
            pairs = ((one, other), (one, one), (other, other))
            both, ours_alone, theirs_alone = (
                float((a * b).sum()) + least for a, b in pairs
            )
            correlations.append(both / (ours_alone * theirs_alone) ** 0.5)
    return Parity(
        float(np.max(differences)), float(np.max(scales)), float(np.min(correlations))
    )
