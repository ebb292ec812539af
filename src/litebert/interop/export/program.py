"""What every export shares: its source and its target, tracing, and the check on a few texts before it is written.

A torch.export program is written here, too.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import Dim, ExportedProgram

from litebert.config import ATTENTION_KINDS
from litebert.errors import LitebertError
from litebert.files import require_new, write_bytes
from litebert.folder.model import load_model
from litebert.interop.export.network import INPUTS, PaddedNetwork, padded
from litebert.interop.reports import ExportReport, Parity
from litebert.nn import Batch, Network
from litebert.tasks.kinds.family import frame_ids
from litebert.tokenizer import Tokenizer

Inputs: TypeAlias = dict[str, NDArray[np.int64]]
Outputs: TypeAlias = Mapping[str, NDArray[np.float32]]
RunBatch: TypeAlias = Callable[[Inputs], Outputs]

_COMPANIONS = ("config.json", "spiece.model", "vocab.txt", "tokenizer.json", "tokenizer_config.json")
_EQUAL = 1e-4  # largest difference allowed between runtimes in float32, for numbers up to one
# Eight bits are refused below this correlation and above this difference, a share of the largest: outputs that hardly
# vary may be close but uncorrelated.
_LEAST_CORRELATION, _LARGEST_SHARE = 0.9, 0.1
_NUM_CHOICES = 4
_BANNED = -1e29  # a value below this means "never" and is not compared
_OVER_POSITIONS = ("start_logits", "end_logits", "no_answer_logits")  # their last axis is not one of features


# --- the source of an export, a model folder, and its target ---------------------------------------------------------


class SourceModel(NamedTuple):
    """A loaded model, and the same weights for padded rectangles."""

    network: Network
    padded: PaddedNetwork
    tokenizer: Tokenizer


def open_source(folder: Path, *, has_head: bool = True, has_states: bool = False) -> SourceModel:
    """Load a model folder to export it with its own head, or without one.

    `has_states` adds the last hidden states to the outputs of the head.
    """
    loaded = load_model(folder)
    attention = loaded.network.config.attention
    if not ATTENTION_KINDS[attention].is_exported:
        raise LitebertError("LB-470", f"attention {attention} cannot be exported", next="use the model with litebert")
    rectangle = padded(loaded.network, missing=loaded.missing, has_head=has_head, has_states=has_states)
    return SourceModel(loaded.network, rectangle, Tokenizer.load(folder))


def require_free(output: Path, *, suffix: str, source: Path) -> dict[Path, bytes]:
    """Refuse an output that exists or would lie beside another model; return the files that belong beside it."""
    require_new(output, force=None)
    paths = [path for name in _COMPANIONS if (path := source / name).is_file()]
    beside = {output.with_name(path.name): path.read_bytes() for path in paths}
    differing = [path for path, data in beside.items() if path.exists() and path.read_bytes() != data]
    if output.suffix != suffix or differing:
        found = f"{differing[0]} of another model" if differing else None
        expected = f"{output.parent / output.stem}/model{suffix}: a file that ends in {suffix}, in a folder of its own"
        raise LitebertError("LB-751", f"{output} cannot be the output", received=found, expected=expected)
    return beside


# --- a program of torch ----------------------------------------------------------------------------------------------


def export_program(folder: Path, output: Path, *, has_head: bool = True) -> ExportReport:
    """Write a model folder as a program for torch.export.load, for any batch size and length.

    It is loaded as a user would and compared with the network before anything is written.
    """
    beside = require_free(output, suffix=".pt2", source=folder)
    source = open_source(folder, has_head=has_head)
    names = source.padded.output_names
    buffer = io.BytesIO()
    torch.export.save(trace(source.padded), buffer)
    call = torch.export.load(io.BytesIO(buffer.getvalue())).module()

    @torch.no_grad()
    def run(inputs: Inputs) -> Outputs:
        outputs = call(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        return {name: values.numpy() for name, values in zip(names, outputs, strict=True)}

    parity = require_near(run, source, output)
    for path, data in (beside | {output: buffer.getvalue()}).items():
        write_bytes(path, data)
    return ExportReport(output, names, output.stat().st_size, parity)


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


def require_near(run: RunBatch, source: SourceModel, output: Path, *, is_int8: bool = False) -> Parity:
    """Refuse an exported network whose outputs on a few texts are not those of the network itself."""
    inputs = our_inputs(source.tokenizer, source.padded)
    outputs = run(inputs)
    parity = compare(outputs, expected_outputs(source, inputs, outputs))
    largest = _LARGEST_SHARE * parity.scale if is_int8 else _EQUAL * max(1.0, parity.scale)
    if parity.max_difference <= largest or (is_int8 and parity.correlation >= _LEAST_CORRELATION):
        return parity  # NaN is neither
    what, limits = f"{output} was not written: its outputs are not the network's", f"differences below {largest:.2g}"
    if is_int8:
        limits += f", or a correlation of at least {_LEAST_CORRELATION}"
    again = "pip install -U 'litebert[onnx]', or report this with the model's config.json"
    next_step = "omit --int8: this network needs more than eight bits" if is_int8 else again
    raise LitebertError("LB-755", what, received=parity, expected=limits, next=next_step)


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
def expected_outputs(source: SourceModel, inputs: Inputs, outputs: Outputs) -> Outputs:
    """Return what `outputs` should be, from the states of the ragged network; -inf where it cannot be compared."""
    ids, mask, segments = (torch.from_numpy(inputs[name]).flatten(0, -2) for name in INPUTS)
    batch = Batch.from_padded(ids, mask, segments)
    hidden = batch.to_padded(source.network.albert(batch), width=ids.shape[1])
    found = zip(source.padded.output_names, source.padded.read(hidden, mask, segments), strict=True)
    expected = {name: values.numpy().reshape(outputs[name].shape) for name, values in found}
    for name, values in expected.items():
        if name in ("last_hidden_state", "prediction_logits") or (name == "logits" and values.ndim == 3):
            values[mask.numpy() == 0] = -np.inf  # of tokens; spans are never on padding anyway
    if "start_top_index" in expected:  # of starts that are equally likely, others may be chosen: with other ends
        differ = expected.pop("start_top_index") != outputs["start_top_index"]
        expected["end_logits"][differ] = -np.inf
    return expected


def compare(outputs: Outputs, expected: Outputs) -> Parity:
    """Compare outputs with the expected ones, as far as these are numbers."""
    differences, scales, correlations = [0.0], [0.0], [1.0]
    for name, ours in expected.items():
        is_real = ~(ours <= _BANNED)  # NaN is compared, and never equal
        if not is_real.any():  # ends of other starts alone
            continue
        width = 1 if name in _OVER_POSITIONS else ours.shape[-1]
        one, other = (x[is_real].reshape(-1, width).astype(np.float64) for x in (ours, outputs[name]))
        with np.errstate(invalid="ignore"):  # infinite outputs
            differences.append(float(np.abs(one - other).max(initial=0)))
            scales.append(float(np.abs(one).max(initial=0)))
            least = 1e-12 * float((one**2).sum()) + 1e-30  # a variance of rounding: constants correlate with constants
            one, other = one - one.mean(0), other - other.mean(0)
            covariance, *variances = (
                float((a * b).sum()) + least for a, b in ((one, other), (one, one), (other, other))
            )
            correlations.append(covariance / (variances[0] * variances[1]) ** 0.5)
    return Parity(float(np.max(differences)), float(np.max(scales)), float(np.min(correlations)))
