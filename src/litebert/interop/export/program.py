"""What every export shares: its source and its target, tracing, and the check on a few texts before it is written.

A torch.export program is written here, too.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import Dim, ExportedProgram

from litebert.config import ATTENTION_KINDS
from litebert.errors import LitebertError
from litebert.files import require_new, write_bytes
from litebert.folder.model import head_of, load_model
from litebert.interop.export.network import INPUTS, NUM_STARTS, PaddedNetwork, allowed_positions, padded
from litebert.interop.reports import ExportReport, Parity
from litebert.nn import AlbertForTask, Batch, Network
from litebert.tasks.kinds.family import frame_ids
from litebert.tasks.kinds.spans import score_spans
from litebert.tokenizer import Tokenizer

Inputs: TypeAlias = dict[str, NDArray[np.int64]]
Outputs: TypeAlias = Mapping[str, NDArray[np.float32]]
RunBatch: TypeAlias = Callable[[Inputs], Outputs]

ENCODER_ONLY = "none"
_COMPANIONS = ("config.json", "spiece.model", "vocab.txt", "tokenizer.json", "tokenizer_config.json")
_EQUAL = 1e-4  # largest difference allowed between runtimes in float32, for numbers up to one
_NUM_CHOICES = 4
_BANNED = -1e29  # a value below this means "never" and is not compared
_OVER_POSITIONS = ("start_logits", "end_logits", "no_answer_logits")  # their last axis is not one of features
_NOT_CHOICES = ("last_hidden_state", "pooler_output", "no_answer_logits")
# --- the source of an export, a model folder, and its target ---------------------------------------------------------


class SourceModel(NamedTuple):
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
    task = head_of(network)
    own = task.kind if task else "pretraining"
    if not ATTENTION_KINDS[attention].is_exported:
        raise LitebertError("LB-470", f"attention {attention} cannot be exported", next="use the model with litebert")
    if head not in (None, own, ENCODER_ONLY):
        raise LitebertError(
            "LB-750", f"{folder} has no head {head}", next=f"--head {own}, or none for the encoder alone"
        )
    rectangle = padded(network, missing=loaded.missing, has_head=head != ENCODER_ONLY, has_states=has_states)
    return SourceModel(head or own, network, rectangle, Tokenizer.load(folder))


def require_free(output: Path, *, suffix: str, source: Path) -> None:
    """Refuse an output that exists, or that would lie beside another model's files."""
    require_new(output, force=None)
    pairs = [(output.parent / name, source / name) for name in _COMPANIONS if (source / name).is_file()]
    differing = [here for here, theirs in pairs if here.exists() and here.read_bytes() != theirs.read_bytes()]
    if output.suffix != suffix or differing:
        found = f"{differing[0]} of another model" if differing else None
        expected = f"{output.parent / output.stem}/model{suffix}: a file that ends in {suffix}, in a folder of its own"
        raise LitebertError("LB-751", f"{output} cannot be the output", received=found, expected=expected)


def write_export(output: Path, data: bytes, *, source: Path) -> None:
    """Write a file with config.json and the tokenizer beside it, so that the folder is complete."""
    for name in _COMPANIONS:
        if (source / name).is_file() and not (output.parent / name).exists():
            write_bytes(output.parent / name, (source / name).read_bytes())
    write_bytes(output, data)


# --- a program of torch ----------------------------------------------------------------------------------------------


def export_program(folder: Path, output: Path, *, head: str | None = None) -> ExportReport:
    """Write a model folder as a program for torch.export.load, for any batch size and length.

    It is loaded as a user would and compared with the network before anything is written.
    """
    require_free(output, suffix=".pt2", source=folder)
    source = open_source(folder, head=head)
    names = source.padded.output_names
    buffer = io.BytesIO()
    torch.export.save(trace(source.padded), buffer)
    data = buffer.getvalue()
    call = torch.export.load(io.BytesIO(data)).module()

    def run(inputs: Inputs) -> Outputs:
        with torch.no_grad():
            outputs = call(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        return {name: values.numpy() for name, values in zip(names, outputs, strict=True)}

    parity = compare_with_network(run, source)
    require_equal(parity, what=str(output))
    write_export(output, data, source=folder)
    return ExportReport(output, source.head, INPUTS, names, len(data), parity, notes=())


def trace(network: PaddedNetwork) -> ExportedProgram:
    """Trace the network once for all shapes."""
    sizes = {"batch": 2, "choices": 3, "length": min(8, network.lengths[-1])}
    example = tuple(torch.ones([sizes[axis] for axis in network.axes], dtype=torch.int64) for _ in INPUTS)
    with torch.no_grad(), quiet():
        program = torch.export.export(network, example, dynamic_shapes=dynamic_shapes(network), strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


def dynamic_shapes(network: PaddedNetwork) -> tuple[dict[int, Dim], ...]:
    """Make the axes of every input dynamic: any batch size, and all lengths with positions."""
    lengths = network.lengths
    dims = {"batch": Dim("batch"), "choices": Dim("choices"), "length": Dim("length", min=lengths[0], max=lengths[-1])}
    return tuple({i: dims[axis] for i, axis in enumerate(network.axes)} for _ in INPUTS)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's warnings about itself, and its exporter's log of missing packages."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.setLevel(level)


# --- the check -------------------------------------------------------------------------------------------------------


def compare_with_network(run: RunBatch, source: SourceModel) -> Parity:
    """Compare a runtime with the ragged network on a few texts."""
    inputs = our_inputs(source.tokenizer, source.padded)
    outputs = run(inputs)
    return compare(outputs, ragged_outputs(source.network, inputs, outputs, starts=outputs.get("start_top_index")))


def our_inputs(tokenizer: Tokenizer, network: PaddedNetwork) -> Inputs:
    """Return our texts as one padded batch: rows, or questions with their choices."""
    lengths = network.lengths
    texts = (files("litebert.interop.export") / "texts.tsv").read_text("utf-8").splitlines()
    pairs = [[tokenizer.encode(text).ids for text in pair.split("\t")] for pair in texts]
    rows = [frame_ids(tokenizer, *pair, max_length=lengths[-1]) for pair in pairs]
    batch = Batch.from_lists([ids for ids, _ in rows], [segments for _, segments in rows])
    shape = (-1, _NUM_CHOICES) if "choices" in network.axes else (-1,)
    width = max(lengths[0], *batch.lengths)
    columns = {"input_ids": batch.ids, "attention_mask": torch.ones_like(batch.ids), "token_type_ids": batch.segments}
    return {name: batch.to_padded(x, width=width).reshape(*shape, width).numpy() for name, x in columns.items()}


@torch.inference_mode()
def ragged_outputs(
    network: Network, inputs: Inputs, names: Collection[str], *, starts: NDArray[np.generic] | None = None
) -> Outputs:
    """Return the outputs of the network itself under these names, -inf on padding.

    A conditional head scores the ends after `starts`, (batch, starts), or after its own best.
    """
    shape = inputs["input_ids"].shape  # (batch, length), or (batch, choices, length)
    ids, mask, segments = (torch.from_numpy(inputs[name]).reshape(-1, shape[-1]) for name in INPUTS)
    batch, of = Batch.from_padded(ids, mask, segments), cast(Any, network)
    if isinstance(network, AlbertForTask) and "start_top_index" in names:
        chosen = NUM_STARTS if starts is None else torch.from_numpy(np.asarray(starts))
        spans = score_spans(network, batch, allowed_positions(mask, segments), chosen)
        found = {"start_logits": spans.start, "end_logits": spans.end, "no_answer_logits": spans.no_answer}
        return {name: values.numpy() for name, values in found.items()}
    hidden, outputs = network.albert(batch), {}  # (tokens, hidden)
    for name in names:
        is_by_token = name in ("last_hidden_state", "prediction_logits")
        if name == "last_hidden_state":
            values = hidden
        elif name == "prediction_logits":
            values = of.masked_lm(hidden, of.albert.embedding.word.weight)
        elif name in ("pooler_output", "sop_logits"):
            pooled = of.albert.pool(hidden[batch.first_tokens])
            values = of.sentence_order(pooled) if name == "sop_logits" else pooled
        else:
            values, record = of(batch), of.head_config.record
            is_by_token = not (record.is_pooled or record.reads_texts)
            if len(record.logits) > 1:
                values = values[:, record.logits.index(name)]
        if is_by_token:  # (tokens, ...) becomes (batch, length, ...)
            values = batch.to_padded(values, width=shape[-1])
            values[mask == 0] = -torch.inf
        outputs[name] = (values.reshape(shape[:2]) if len(shape) == 3 else values).numpy()
    return outputs


def compare(outputs: Outputs, expected: Outputs) -> Parity:
    """Compare a runtime's outputs with those of the ragged network on real tokens; padding is excluded."""
    differences, scales, correlations = [0.0], [0.0], [1.0]
    same: list[NDArray[np.bool_]] = []
    for name, ours in expected.items():
        valid, theirs = ~(ours <= _BANNED), outputs[name]  # NaN is compared, and never equal
        width = 1 if name in _OVER_POSITIONS else ours.shape[-1]
        pair = np.stack([x[valid].reshape(-1, width).astype(np.float64) for x in (ours, theirs)])  # (2, rows, width)
        with np.errstate(invalid="ignore", divide="ignore"):  # infinite or constant outputs
            differences.append(float(np.abs(pair[0] - pair[1]).max(initial=0)))
            scales.append(float(np.abs(pair[0]).max(initial=0)))
            deviations = (pair - pair.mean(1, keepdims=True)).reshape(2, -1)
            covariance = deviations @ deviations.T
            is_constant = covariance.diagonal() <= 1e-12 * (pair**2).sum((1, 2))
            correlation = covariance[0, 1] / np.sqrt(covariance.diagonal().prod())
        correlations.append(float(is_constant.all()) if is_constant.any() else float(correlation))
        if name not in _NOT_CHOICES and ours.shape[-1] > 1:
            first, second = (np.where(valid, x, -np.inf).argmax(-1) for x in (ours, theirs))
            same.append((first == second)[valid.any(-1)])
    choices = float(np.concatenate(same).mean()) if same else None
    return Parity(float(np.max(differences)), float(np.max(scales)), float(np.min(correlations)), choices)


def require_equal(parity: Parity, *, what: str) -> None:
    """Refuse an exported network whose outputs are not those of the network itself."""
    limit = _EQUAL * max(1.0, parity.scale)
    if not parity.max_difference <= limit:  # NaN is no number below it
        said = f"{what} was not written: its outputs differ from the network's by {parity.max_difference:.2g}"
        again = "pip install -U 'litebert[onnx]', or report this with the model's config.json"
        raise LitebertError("LB-755", said, expected=f"at most {limit:.2g}", next=again)
