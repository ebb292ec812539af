"""Export a model as one ONNX file, each weight once, in float32 or true int8."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.errors import LitebertError, missing_package
from litebert.folder.model import head_of
from litebert.interop import ExportReport
from litebert.interop.export.check import RunBatch, require_near
from litebert.interop.export.network import INPUTS, PaddedNetwork
from litebert.interop.export.source import (
    SourceModel,
    open_source,
    require_free,
    write_beside,
)
from litebert.interop.export.tracing import dynamic_shapes, quiet, trace

try:
    import onnx
    import onnxruntime
    import onnxscript  # noqa: F401  # torch.onnx uses it
except ImportError as error:
    raise missing_package(
        error.name or "onnx", extra="onnx", needed_for="export to ONNX"
    ) from error

OPSET = 20  # the first with Gelu as a single operator
# largest protobuf message in bytes, less some for the graph
_FILE_LIMIT = 2**31 - 2**20
_GOOD_CORRELATION = 0.99


def export_onnx(
    folder: Path, output: Path, *, int8: bool = False, has_head: bool = True
) -> ExportReport:
    """Write a model folder as one ONNX file, with the tokenizer next to it.

    The outputs are those of the folder's head, or of the encoder only. The file is not
    written if onnxruntime computes wrong outputs with it on a few texts.
    """
    beside = require_free(output, source=folder)
    source = open_source(folder, has_head=has_head)
    data, report = convert(source, output, int8=int8)
    write_beside(beside, output, data)
    return report


def convert(
    source: SourceModel, output: Path, *, int8: bool, table_bits: int = 8
) -> tuple[bytes, ExportReport]:
    """Return the bytes of the file, which gives the outputs of the network, and the
    report.
    """
    notes = list[str]()
    graph = to_graph(source.padded)
    _describe_answers(graph, source)
    data = graph.SerializeToString()
    parity = require_near(runner(data), source, output)
    if int8:
        data = _quantize_all(graph, table_bits).SerializeToString()
        parity = require_near(runner(data), source, output, is_int8=True)
        if not parity.correlation >= _GOOD_CORRELATION:  # or NaN
            notes.append(
                f"eight bits change these outputs (correlation below"
                f" {_GOOD_CORRELATION}): compare its answers with the model's on your"
                " own data"
            )
    names = source.padded.output_names
    return data, ExportReport(output, names, len(data), parity, tuple(notes))


def _describe_answers(graph: onnx.ModelProto, source: SourceModel) -> None:
    """Write into the file how its logits become answers: the names of the labels, and
    what to apply to them.
    """
    head = head_of(source.network)
    if head is None or head.task_kind is None or not source.has_head:
        return
    described = {
        "litebert.head": head.kind,
        "litebert.labels": json.dumps(list(head.labels), ensure_ascii=False),
        "litebert.activation": head.task_kind.activation,
    }
    onnx.helper.set_model_props(graph, described)


def runner(model: bytes) -> RunBatch:
    """Return a function that runs a graph in onnxruntime, with as many threads as
    torch.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    # threads that keep spinning after a run would slow torch down
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


# --- the graph ------------------------------------------------------------------------


def to_graph(network: PaddedNetwork) -> onnx.ModelProto:
    """Export with dynamic axes for batch and length, storing each weight once."""
    size = 4 * sum(parameter.numel() for parameter in network.parameters())
    if size > _FILE_LIMIT:
        raise LitebertError(
            "LB-474",
            "the weights do not fit in one ONNX file",
            received=f"{size:,} bytes",
            expected=f"at most {_FILE_LIMIT:,}",
            next="use the model with litebert, or begin a smaller student: litebert distil",
        )
    with quiet():
        traced = torch.onnx.export(
            trace(network),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=dynamic_shapes(network),
            input_names=list(INPUTS),
            output_names=list(network.output_names),
            verbose=False,
        )
    assert traced is not None
    model = traced.model_proto
    # The exporter's metadata is long and contains paths of this machine.
    model.producer_name = "litebert"
    model.producer_version = ""
    graph = model.graph
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:]
    for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.checker.check_model(model, full_check=True)
    return model


# --- int8: weights with one scale per column; activations are quantized dynamically

_LAST_AXIS = "int8.last_axis"
# the axis of the inputs of a weight
_INPUTS_OF_PRODUCT = 0  # (inputs, outputs)
_INPUTS_OF_TABLE = 1  # (pieces, embed)


def _quantize_all(graph: onnx.ModelProto, table_bits: int) -> onnx.ModelProto:
    small = quantize(graph, table_bits=table_bits)
    floats = _float_weights(small.graph)
    for node in small.graph.node:
        if node.op_type in ("MatMul", "Gemm"):
            assert floats.keys().isdisjoint(node.input), "a weight is left in float"
    return small


def quantize(model: onnx.ModelProto, *, table_bits: int = 8) -> onnx.ModelProto:
    """Return the graph with every weight product and every table lookup in int8, each
    weight stored once.

    One scale per row of the word table is also one per column of the masked-LM output
    layer, so the two share one table. With `table_bits` below 8, tables use only that
    many bits, so that the file compresses better.

    A product becomes DynamicQuantizeLinear, MatMulInteger and a rescaling, which
    onnxruntime fuses into one operator. Weights are symmetric, activations asymmetric.
    All activations of a product share one scale, so the outputs of a row depend
    slightly on its neighbors in the batch.
    """
    graph = model.graph
    floats = _float_weights(graph)
    transposed = _transposed_weights(graph, floats)
    axes = _input_axes(graph, floats, transposed)
    nodes = _quantized_nodes(graph, axes, transposed)

    # what stays in float, such as biases and norms; then the weights in int8
    inputs = nodes.inputs()
    constants = [tensor for tensor in graph.initializer if tensor.name in inputs]
    for name, axis in axes.items():
        weights = onnx.numpy_helper.to_array(floats[name])
        is_table = axis == _INPUTS_OF_TABLE
        bits = table_bits if is_table else 8
        integers, scales = _to_int8(weights, axis, bits)
        constants.append(onnx.numpy_helper.from_array(integers, f"{name}.int8"))
        constants.append(onnx.numpy_helper.from_array(scales, f"{name}.scale"))
    constants.append(onnx.numpy_helper.from_array(np.array([-1]), _LAST_AXIS))
    result = onnx.helper.make_model(
        onnx.helper.make_graph(
            list(nodes.by_output.values()),
            graph.name,
            graph.input,
            graph.output,
            constants,
        ),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
    )
    result.metadata_props.extend(model.metadata_props)
    onnx.checker.check_model(result, full_check=True)
    return result


def _quantized_nodes(
    graph: onnx.GraphProto, axes: dict[str, int], transposed: dict[str, str]
) -> "_Int8Nodes":
    """Return the nodes of a graph in which the weights with an axis are in int8."""
    nodes = _Int8Nodes()
    for node in graph.node:
        first = node.input[0] if node.input else ""
        # the weight of a product, by its name before it is transposed
        weight = ""
        if node.op_type == "MatMul":
            weight = transposed.get(node.input[1], node.input[1])
        if weight in axes:
            nodes.add_product(node, weight)
        elif node.op_type == "Gather" and first in axes:
            nodes.add_lookup(node)
        elif node.op_type == "Transpose" and first in axes:
            nodes.add(
                "Transpose", [f"{first}.int8"], f"{node.output[0]}.int8", perm=[1, 0]
            )
        else:
            nodes.by_output[node.output[0]] = node
    return nodes


def _float_weights(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    is_float = onnx.TensorProto.FLOAT
    return {x.name: x for x in graph.initializer if x.data_type == is_float}


def _transposed_weights(
    graph: onnx.GraphProto, floats: dict[str, onnx.TensorProto]
) -> dict[str, str]:
    """Return the outputs of nodes that transpose a weight, with the name of the
    weight.
    """
    transposed = dict[str, str]()
    for node in graph.node:
        if node.op_type == "Transpose" and node.input[0] in floats:
            transposed[node.output[0]] = node.input[0]
    return transposed


def _input_axes(
    graph: onnx.GraphProto,
    floats: dict[str, onnx.TensorProto],
    transposed: dict[str, str],
) -> dict[str, int]:
    """Return, for each weight of a product or a table, the axis of its inputs, which
    share one scale.
    """
    axes = dict[str, int]()
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in floats:
            axes[node.input[1]] = _INPUTS_OF_PRODUCT
        elif node.op_type == "MatMul" and node.input[1] in transposed:
            # the word table as output layer: each of its rows gives one output
            axes[transposed[node.input[1]]] = _INPUTS_OF_TABLE
        elif node.op_type == "Gather" and node.input[0] in floats:
            axes[node.input[0]] = _INPUTS_OF_TABLE
    return axes


class _Int8Nodes:
    """The nodes of a quantized graph, by output, so that an input that several products
    share is quantized once.
    """

    def __init__(self) -> None:
        self.by_output = dict[str, onnx.NodeProto]()

    def add(self, kind: str, inputs: list[str], *outputs: str, **settings: Any) -> None:
        node = onnx.helper.make_node(kind, inputs, outputs, **settings)
        self.by_output[outputs[0]] = node

    def add_product(self, node: onnx.NodeProto, weight: str) -> None:
        """Add a product in integers and its rescaling to float."""
        x, factor = node.input  # the factor is the weight, or the weight transposed
        (out,) = node.output
        # x as bytes, with its scale and zero point
        x_bytes = f"{x}.uint8"
        x_scale = f"{x}.scale"
        x_zero = f"{x}.zero"
        self.add("DynamicQuantizeLinear", [x], x_bytes, x_scale, x_zero)

        product = f"{out}.int32"
        self.add("MatMulInteger", [x_bytes, f"{factor}.int8", x_zero], product)

        scale = f"{out}.scale"
        self.add("Mul", [x_scale, f"{weight}.scale"], scale)
        self._add_rescaling(product, scale, out)

    def add_lookup(self, node: onnx.NodeProto) -> None:
        """Add the lookup of rows in eight bits, with the scale of each."""
        table, ids = node.input
        (out,) = node.output
        rows = f"{out}.int8"
        self.add("Gather", [f"{table}.int8", ids], rows)

        # one scale a row: (ids,), then (ids, 1)
        scale = f"{out}.scale"
        self.add("Gather", [f"{table}.scale", ids], scale)
        scales = f"{out}.scales"
        self.add("Unsqueeze", [scale, _LAST_AXIS], scales)
        self._add_rescaling(rows, scales, out)

    def _add_rescaling(self, integers: str, scale: str, out: str) -> None:
        """Add integers times their scale, as float."""
        numbers = f"{out}.float"
        self.add("Cast", [integers], numbers, to=onnx.TensorProto.FLOAT)
        self.add("Mul", [numbers, scale], out)

    def inputs(self) -> set[str]:
        return set(chain.from_iterable(node.input for node in self.by_output.values()))


def _to_int8(
    weights: np.ndarray, axis: int, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights as integers of that many bits, with one scale for all inputs of an
    output; `axis` is that of the inputs.
    """
    # The largest weight of an output becomes the largest integer: 127 in eight bits.
    # -128 is not used, so that the integers are symmetric.
    largest = np.abs(weights).max(axis=axis, keepdims=True)  # (1, outputs) or (rows, 1)
    tiny = np.finfo(np.float32).tiny  # for outputs whose weights are all zero
    scales = np.maximum(largest, tiny) / (2 ** (bits - 1) - 1)
    integers = np.rint(weights / scales).astype(np.int8)
    return integers, scales.squeeze(axis)
