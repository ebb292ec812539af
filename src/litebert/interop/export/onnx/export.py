"""Export a model folder to one ONNX file, checked against the network before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import LitebertError
from litebert.interop.export.onnx.graph import DEFAULT_OPSET, to_graph
from litebert.interop.export.onnx.int8 import quantise
from litebert.interop.export.onnx.runtime import measure, onnx, start
from litebert.interop.export.padded import INPUTS
from litebert.interop.export.parity import Parity, RunBatch, compare, require_equal
from litebert.interop.export.ragged import Outputs, ragged_outputs
from litebert.interop.export.samples import OUR_TEXTS, Inputs, Text, padded_batches
from litebert.interop.export.source import SourceModel, open_source, require_free, write_export

_ITSELF, _FP32, _INT8 = "litebert", "onnxruntime fp32", "onnxruntime int8"
_LEAST_CORRELATION, _LARGEST_SHARE = 0.9, 0.1
"""int8 is refused below this correlation and above this difference, a share of the largest."""
_GOOD_CORRELATION, _GOOD_CHOICES = 0.99, 0.95


@dataclass(frozen=True)
class OnnxRow:
    """A row of the table: a runtime, its file, how exact it is and how long a batch takes.

    `parity` is None for the network itself; `milliseconds` is empty if nothing was timed.
    """

    name: str
    bytes: int
    ratio: float
    parity: Parity | None
    milliseconds: dict[str, float]


@dataclass(frozen=True)
class OnnxReport:
    """What was written, what it takes and gives, and how it compares."""

    output: Path
    head: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    products: Products
    rows: tuple[OnnxRow, ...]
    notes: tuple[str, ...]


def export_onnx(
    folder: Path,
    output: Path,
    *,
    int8: bool = False,
    opset: int = DEFAULT_OPSET,
    head: str | None = None,
    texts: Sequence[Text] = OUR_TEXTS,
    has_latency: bool = True,
    has_states: bool = False,
    table_bits: int = 8,
) -> OnnxReport:
    """Write a model folder as one ONNX file, with the tokenizer beside it.

    The outputs are those of the folder's head, or of the encoder with `head="none"`; `has_states`
    gives both, and `table_bits` is for `quantise`. onnxruntime first runs the model on `texts`, and
    the file is not written if its outputs are wrong.

    Raises:
        LitebertError: LB-750, no such head; LB-751, LB-752, the output is taken; LB-755, LB-760,
            wrong numbers; LB-756, no such opset; LB-757, too large; LB-758, LB-759, the exporter
            did not do its work; LB-305, the extra [onnx] is missing.
    """
    require_free(output, suffix=".onnx", source=folder)
    source = open_source(folder, head=head, has_states=has_states)
    graph = to_graph(source.padded, opset=opset)
    files = {_FP32: graph.SerializeToString()}
    products = count_products(graph)
    if int8:
        small = quantise(graph, table_bits=table_bits)
        products = require_integer(small)
        files[_INT8] = small.SerializeToString()
    runners = {name: start(data) for name, data in files.items()}
    parities = _parities(source, runners, texts, output)
    times = _times(source, runners) if has_latency else {}
    write_export(output, list(files.values())[-1], source=folder)
    sizes = {_ITSELF: source.weight_bytes} | {name: len(data) for name, data in files.items()}
    return OnnxReport(
        output=output,
        head=source.head,
        opset=opset,
        inputs=INPUTS,
        outputs=source.padded.output_names,
        products=products,
        rows=tuple(
            OnnxRow(name, size, size / source.weight_bytes, parities.get(name), times.get(name, {}))
            for name, size in sizes.items()
        ),
        notes=_notes(parities.get(_INT8)),
    )


def _parities(
    source: SourceModel, runners: dict[str, RunBatch], texts: Sequence[Text], output: Path
) -> dict[str, Parity]:
    """Compare each runtime with the network; wrong numbers are refused.

    Raises:
        LitebertError: LB-755, float32 differs; LB-760, int8 is not near.
    """
    batches = list(padded_batches(texts, source.tokenizer, source.padded))
    found = {name: compare(run, source.network, batches) for name, run in runners.items()}
    require_equal(found[_FP32], what=str(output))
    if _INT8 in found and _is_lost(found[_INT8]):
        raise LitebertError(
            "LB-760",
            f"{output} was not written: int8 changes this network's outputs too much",
            received=f"a correlation of {found[_INT8].correlation:.3f} with its own outputs",
            expected=f"at least {_LEAST_CORRELATION}, or differences below {_LARGEST_SHARE:.0%}",
            next="omit --int8",
        )
    return found


def _is_lost(parity: Parity) -> bool:
    """Tell whether int8 lost the outputs: those that hardly vary may be close but uncorrelated."""
    is_near = parity.max_difference <= _LARGEST_SHARE * parity.scale
    return not (is_near or parity.correlation >= _LEAST_CORRELATION)


def _times(source: SourceModel, runners: dict[str, RunBatch]) -> dict[str, dict[str, float]]:
    network, names = source.network, source.padded.output_names

    def itself(inputs: Inputs) -> Outputs:
        return ragged_outputs(network, inputs, names)

    return measure({_ITSELF: itself} | runners, source.padded, vocab_size=network.config.vocab_size)


def _notes(parity: Parity | None) -> tuple[str, ...]:
    """Return warnings to read before trusting int8."""
    if parity is None:
        return ()
    share = parity.same_choice
    if parity.correlation >= _GOOD_CORRELATION and (share is None or share >= _GOOD_CHOICES):
        return ()
    return ("int8 moves these outputs visibly: evaluate the file on your own data before use",)


_FLOAT = ("MatMul", "Gemm", "Einsum", "Conv")
_INTEGER = ("MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")


@dataclass(frozen=True)
class Products:
    """How many products have a constant operand, by the arithmetic that computes them."""

    floating: int
    integer: int


def count_products(model: onnx.ModelProto) -> Products:
    """Follow constants through the graph, so that a transposed or rescaled weight counts too."""
    constants = {tensor.name for tensor in model.graph.initializer}
    counts = {"floating": 0, "integer": 0}
    for node in model.graph.node:
        is_constant = [name in constants for name in node.input if name]
        if all(is_constant):
            constants.update(node.output)
        elif any(is_constant[:2]) and node.op_type in _FLOAT:
            counts["floating"] += 1
        elif any(is_constant[:2]) and node.op_type in _INTEGER:
            counts["integer"] += 1
    return Products(**counts)


def require_integer(model: onnx.ModelProto) -> Products:
    """Refuse a graph that still multiplies weights in float, or none in int8.

    Raises:
        LitebertError: LB-759.
    """
    products = count_products(model)
    if products.floating or not products.integer:
        raise LitebertError(
            "LB-759",
            "the graph is not int8: products with weights stayed in float",
            received=f"{products.floating} in float, {products.integer} in int8",
            expected=f"all {products.floating + products.integer} in int8",
            next="pip install -U torch onnxscript, or omit --int8",
        )
    return products
