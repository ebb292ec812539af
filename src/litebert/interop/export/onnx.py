"""A model as one ONNX file: each weight once, in float32 or true int8, checked in onnxruntime before it is written."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.errors import LitebertError, missing_package
from litebert.files import write_bytes
from litebert.interop.export import program
from litebert.interop.export.network import INPUTS, PaddedNetwork
from litebert.interop.export.program import RunBatch
from litebert.interop.reports import ExportReport

try:
    import onnx
    import onnxruntime
    import onnxscript  # noqa: F401  # torch.onnx uses it
except ImportError as error:
    raise missing_package(error.name or "onnx", extra="onnx", needed_for="export to ONNX") from error

OPSET = 20  # the first that has Gelu as one operator
_FILE_LIMIT = 2**31 - 2**20  # largest protobuf message in bytes, less some for the graph
_SLACK = 2**16  # bytes of shape constants, and of tables so small that the exporter folds them
_GOOD_CORRELATION = 0.99


def export_onnx(
    folder: Path,
    output: Path,
    *,
    int8: bool = False,
    has_head: bool = True,
    has_states: bool = False,
    table_bits: int = 8,
) -> ExportReport:
    """Write a model folder as one ONNX file, with the tokenizer beside it.

    The outputs are those of the folder's head, or of the encoder alone; `has_states` gives both, and `table_bits` is
    for `quantise`. onnxruntime first runs the model on a few texts, and the file is not written if its outputs are
    wrong.
    """
    beside = program.require_free(output, suffix=".onnx", source=folder)
    source = program.open_source(folder, has_head=has_head, has_states=has_states)
    graph, notes = to_graph(source.padded), tuple[str, ...]()
    data = graph.SerializeToString()
    parity = program.require_near(start(data), source, output)
    if int8:
        small = quantise(graph, table_bits=table_bits)
        floating, integer = count_products(small)
        assert integer and not floating, f"{floating} products with weights are left in float"
        data = small.SerializeToString()
        parity = program.require_near(start(data), source, output, is_int8=True)
        if not parity.correlation >= _GOOD_CORRELATION:
            notes = ("int8 moves these outputs visibly: evaluate the file on your own data before use",)
    for path, contents in (beside | {output: data}).items():
        write_bytes(path, contents)
    return ExportReport(output, source.padded.output_names, len(data), parity, notes)


def start(model: bytes) -> RunBatch:
    """Return a graph as a function that onnxruntime computes with as many threads as torch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that keep spinning after a run would slow down torch.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


# --- the graph -------------------------------------------------------------------------------------------------------


def to_graph(network: PaddedNetwork) -> onnx.ModelProto:
    """Export with dynamic axes for batch and length, and each weight once."""
    size = 4 * sum(parameter.numel() for parameter in network.parameters())
    if size > _FILE_LIMIT:
        what = f"the weights, {size:,} bytes, do not fit in one ONNX file of at most {_FILE_LIMIT:,}"
        raise LitebertError("LB-757", what, next="litebert export program has no such limit")
    with program.quiet():
        traced = torch.onnx.export(
            program.trace(network),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=program.dynamic_shapes(network),
            input_names=list(INPUTS),
            output_names=list(network.output_names),
            verbose=False,
        )
    assert traced is not None
    model = traced.model_proto
    # The exporter's metadata is long and contains paths of this machine.
    model.producer_name, model.producer_version = "litebert", ""
    graph = model.graph
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:]
    for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    stored = sum(tensor.ByteSize() for tensor in graph.initializer)
    assert stored <= size + _SLACK, f"the exporter stored weights more than once: {stored:,} bytes of {size:,}"
    onnx.checker.check_model(model, full_check=True)
    return model


def count_products(model: onnx.ModelProto) -> tuple[int, int]:
    """Return how many products have a constant operand, in float and in int8.

    Constants are followed through the graph, so that a transposed or rescaled weight counts, too.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    floating = integer = 0
    for node in model.graph.node:
        is_constant = [name in constants for name in node.input if name]
        if all(is_constant):
            constants.update(node.output)
        elif any(is_constant[:2]):
            floating += node.op_type in ("MatMul", "Gemm", "Einsum", "Conv")
            integer += "Quantize" in node.op_type or "Integer" in node.op_type or node.op_type == "QLinearMatMul"
    return floating, integer


# --- int8: weights with one scale per column; activations are quantised dynamically ----------------------------------

_LAST_AXIS = "int8.last_axis"


def quantise(model: onnx.ModelProto, *, table_bits: int = 8) -> onnx.ModelProto:
    """Return the graph with every weight product and every table lookup in int8, each weight stored once.

    One scale per row of the word table is also one per column of the masked-LM output layer, so the two share one
    table. With `table_bits` below 8, tables use only that many bits, so that the file compresses better.

    A product becomes DynamicQuantizeLinear, MatMulInteger and a rescaling, which onnxruntime fuses into one operator.
    Weights are symmetric, activations asymmetric. All activations of a product share one scale: the outputs of a row
    depend slightly on its neighbours in the batch.
    """
    graph = model.graph
    floats = {t.name: t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    transposed = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Transpose" and n.input[0] in floats}
    axes: dict[str, int] = {}  # of each weight, the axis of its inputs, over which it has one scale
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in floats:
            axes[node.input[1]] = 0
        elif node.op_type == "MatMul" and node.input[1] in transposed:
            axes[transposed[node.input[1]]] = 1
        elif node.op_type == "Gather" and node.input[0] in floats:
            axes[node.input[0]] = 1

    nodes: dict[str, onnx.NodeProto] = {}  # by output, so that an input is quantised once

    def add(kind: str, inputs: list[str], *outputs: str, **settings: Any) -> None:
        nodes[outputs[0]] = onnx.helper.make_node(kind, inputs, outputs, **settings)

    for node in graph.node:
        out = node.output[0]
        if node.op_type == "MatMul" and (weight := transposed.get(node.input[1], node.input[1])) in axes:
            x = node.input[0]
            add("DynamicQuantizeLinear", [x], f"{x}.uint8", f"{x}.scale", f"{x}.zero")
            add("MatMulInteger", [f"{x}.uint8", f"{node.input[1]}.int8", f"{x}.zero"], f"{out}.int32")
            add("Cast", [f"{out}.int32"], f"{out}.float", to=onnx.TensorProto.FLOAT)
            add("Mul", [f"{x}.scale", f"{weight}.scale"], f"{out}.scale")
            add("Mul", [f"{out}.float", f"{out}.scale"], out)
        elif node.op_type == "Gather" and (table := node.input[0]) in axes:
            add("Gather", [f"{table}.int8", node.input[1]], f"{out}.int8")
            add("Gather", [f"{table}.scale", node.input[1]], f"{out}.scale")
            add("Unsqueeze", [f"{out}.scale", _LAST_AXIS], f"{out}.scales")
            add("Cast", [f"{out}.int8"], f"{out}.float", to=onnx.TensorProto.FLOAT)
            add("Mul", [f"{out}.float", f"{out}.scales"], out)
        elif node.op_type == "Transpose" and node.input[0] in axes:
            add("Transpose", [f"{node.input[0]}.int8"], f"{out}.int8", perm=[1, 0])
        else:
            nodes[out] = node

    used = {name for node in nodes.values() for name in node.input}
    constants = [tensor for tensor in graph.initializer if tensor.name in used]
    for name, axis in axes.items():
        weight, bits = onnx.numpy_helper.to_array(floats[name]), table_bits if axis else 8
        largest = np.abs(weight).max(axis=axis, keepdims=True)
        scale = np.maximum(largest, np.finfo(np.float32).tiny) / (2 ** (bits - 1) - 1)
        constants.append(onnx.numpy_helper.from_array(np.rint(weight / scale).astype(np.int8), f"{name}.int8"))
        constants.append(onnx.numpy_helper.from_array(scale.squeeze(axis), f"{name}.scale"))
    constants.append(onnx.numpy_helper.from_array(np.array([-1]), _LAST_AXIS))
    result = onnx.helper.make_model(
        onnx.helper.make_graph(list(nodes.values()), graph.name, graph.input, graph.output, constants),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
    )
    onnx.checker.check_model(result, full_check=True)
    return result
