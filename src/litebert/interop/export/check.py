"""The check that all exports pass: their outputs on a few texts are the network's."""

import math
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.errors import LitebertError
from litebert.interop import Parity
from litebert.interop.export.network import INPUTS
from litebert.interop.export.source import SourceModel
from litebert.nn import Batch
from litebert.tasks.kinds.family import frame_ids

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
# outputs whose last axis has positions, not features
_OVER_POSITIONS = ("start_logits", "end_logits", "no_answer_logits")


@torch.inference_mode()
def require_near(
    run: RunBatch, source: SourceModel, output: Path, *, is_int8: bool = False
) -> Parity:
    """Compare the outputs of an exported network on a few texts with the network's own;
    raise if they differ.
    """
    batch = _batch_of_texts(source)
    width = max(source.padded.lengths[0], *batch.lengths)
    # (sequences, width) each
    ids = batch.to_padded(batch.ids, width=width)
    mask = batch.to_padded(torch.ones_like(batch.ids), width=width)
    segments = batch.to_padded(batch.segments, width=width)
    outputs = run(_inputs(source, ids, mask, segments))

    # The expected outputs follow from the states of the ragged network.
    states = batch.to_padded(source.network.albert(batch), width=width)
    expected = _expected(source, source.padded.read(states, mask, segments), outputs)
    _leave_out_padding(expected, mask)
    parity = compare(outputs, expected)
    _require_parity(parity, output, is_int8=is_int8)
    return parity


def _inputs(source: SourceModel, *inputs: Tensor) -> Inputs:
    """Return ids, mask and segments, (sequences, width) each, as a graph takes them."""
    width = inputs[0].shape[-1]
    shape: tuple[int, ...] = (-1, width)
    if source.padded.has_choices:  # (questions, choices, width)
        shape = (-1, _NUM_CHOICES, width)
    named = zip(INPUTS, inputs, strict=True)
    return {name: tensor.reshape(shape).numpy() for name, tensor in named}


def _require_parity(parity: Parity, output: Path, *, is_int8: bool) -> None:
    """Raise LB-755 unless outputs in float32 are those of the network; in eight bits, if
    they differ much and are uncorrelated, too.
    """
    if is_int8:
        largest = _LARGEST_SHARE * parity.scale
        limits = (
            f"differences below {largest:.2g}, or a correlation of at least"
            f" {_LEAST_CORRELATION}"
        )
        advice = "omit --int8: this network needs more than eight bits"
        is_alike = parity.correlation >= _LEAST_CORRELATION
    else:
        largest = _EQUAL * max(1.0, parity.scale)
        limits = f"differences below {largest:.2g}"
        advice = (
            "pip install -U 'litebert[onnx]', or report this with the model's"
            " config.json"
        )
        is_alike = False
    if is_alike or parity.max_difference <= largest:  # NaN is not
        return
    raise LitebertError(
        "LB-755",
        f"{output} was not written: its outputs are not the network's",
        received=parity,
        expected=limits,
        next=advice,
    )


def _batch_of_texts(source: SourceModel) -> Batch:
    """Return our texts as a batch: rows, or questions with their choices."""
    tokenizer = source.tokenizer
    longest = source.padded.lengths[-1]
    text = (files("litebert.interop.export") / "texts.tsv").read_text("utf-8")
    ids = list[list[int]]()
    segments = list[list[int]]()
    for line in text.splitlines():
        pair = [tokenizer.encode(part).ids for part in line.split("\t")]
        framed = frame_ids(tokenizer, *pair, max_length=longest)
        ids.append(framed[0])
        segments.append(framed[1])
    return Batch.from_lists(ids, segments)


def _expected(
    source: SourceModel, values: tuple[Tensor, ...], outputs: Outputs
) -> dict[str, NDArray[np.float32]]:
    """Return the expected outputs by name; -inf where they cannot be compared."""
    expected = dict[str, NDArray[np.float32]]()
    for name, value in zip(source.padded.output_names, values, strict=True):
        expected[name] = value.numpy().reshape(outputs[name].shape)
    # among equally likely starts, others may be chosen, which have other ends
    if "start_top_index" in expected:
        differs = expected.pop("start_top_index") != outputs["start_top_index"]
        expected["end_logits"][differs] = -np.inf
    return expected


def _leave_out_padding(
    expected: Mapping[str, NDArray[np.float32]], mask: Tensor
) -> None:
    """Set outputs for tokens to -inf on padding; spans never lie there anyway."""
    for name, values in expected.items():
        is_tagging = name == "logits" and values.ndim == 3
        if is_tagging or name in ("last_hidden_state", "prediction_logits"):
            values[mask.numpy() == 0] = -np.inf


def compare(outputs: Outputs, expected: Outputs) -> Parity:
    """Compare outputs with the expected ones, where these are real numbers."""
    differences = [0.0]
    scales = [0.0]
    correlations = [1.0]
    for name, values in expected.items():
        is_real = ~(values <= _BANNED)  # NaN is compared, and never equal
        if not is_real.any():  # only ends of other starts
            continue
        num_features = 1 if name in _OVER_POSITIONS else values.shape[-1]
        shape = (-1, num_features)  # (rows, features)
        wanted = values[is_real].astype(np.float64).reshape(shape)
        computed = outputs[name][is_real].astype(np.float64).reshape(shape)
        with np.errstate(invalid="ignore"):  # infinite outputs
            distances = np.abs(wanted - computed)
            differences.append(float(distances.max(initial=0)))
            scales.append(float(np.abs(wanted).max(initial=0)))
            correlations.append(_correlation(wanted, computed))
    return Parity(  # numpy's max and min, unlike Python's, keep a NaN
        max_difference=float(np.max(differences)),
        scale=float(np.max(scales)),
        correlation=float(np.min(correlations)),
    )


def _correlation(wanted: NDArray[np.float64], computed: NDArray[np.float64]) -> float:
    """Return the correlation of deviations from the mean of each feature, given outputs
    of (rows, features); 1 between constants, whose deviations are rounding.
    """
    # added to each sum, so that the deviations of constants do not decide
    rounding = 1e-12 * float((wanted**2).sum()) + 1e-30
    wanted_deviation = wanted - wanted.mean(0)
    computed_deviation = computed - computed.mean(0)
    product = float((wanted_deviation * computed_deviation).sum()) + rounding
    wanted_square = float((wanted_deviation**2).sum()) + rounding
    computed_square = float((computed_deviation**2).sum()) + rounding
    return product / math.sqrt(wanted_square * computed_square)
