"""Eight-bit weights with one scale per column; activations are quantised dynamically.

Each weight is stored once, however many nodes read it. One scale per row of the word table is also
one per column of the masked-LM output layer, so the two share one eight-bit table. All activations
of a product share one scale: the outputs of a row depend slightly on its neighbours in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from litebert.interop.export.onnx.runtime import onnx

_LAST_AXIS = "int8.last_axis"
_make = onnx.helper.make_node
Nodes: TypeAlias = Iterator[onnx.NodeProto]


def quantise(model: onnx.ModelProto, *, table_bits: int = 8) -> onnx.ModelProto:
    """Return the graph with every weight product and every table lookup in int8.

    With `table_bits` below 8, tables use only that many bits, so that the file compresses better.

    A product becomes DynamicQuantizeLinear, MatMulInteger and a rescaling, which onnxruntime
    fuses into one operator. Weights are symmetric, activations asymmetric.
    """
    graph = model.graph
    floats = {t.name: t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    transposed = {
        node.output[0]: node.input[0] for node in graph.node if node.op_type == "Transpose" and node.input[0] in floats
    }
    axes = dict(_weights(graph, floats, transposed))
    nodes = [new for node in graph.node for new in _rewritten(node, axes, transposed)]
    nodes = list({node.output[0]: node for node in nodes}.values())  # an input is quantised once
    used = {name for node in nodes for name in node.input}
    constants = [tensor for tensor in graph.initializer if tensor.name in used]
    for name, axis in axes.items():
        constants += _eight_bits(floats[name], axis, bits=table_bits if axis else 8)
    constants.append(onnx.numpy_helper.from_array(np.array([-1]), _LAST_AXIS))
    result = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, graph.name, graph.input, graph.output, constants),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
    )
    onnx.checker.check_model(result, full_check=True)
    return result


def _weights(
    graph: onnx.GraphProto, floats: Mapping[str, onnx.TensorProto], transposed: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """Yield each weight with the axis of its inputs, over which it has one scale."""
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in floats:
            yield node.input[1], 0
        elif node.op_type == "MatMul" and node.input[1] in transposed:
            yield transposed[node.input[1]], 1
        elif node.op_type == "Gather" and node.input[0] in floats:
            yield node.input[0], 1


def _rewritten(node: onnx.NodeProto, axes: Mapping[str, int], transposed: Mapping[str, str]) -> Nodes:
    if node.op_type == "MatMul" and transposed.get(node.input[1], node.input[1]) in axes:
        yield from _product(node, scale=f"{transposed.get(node.input[1], node.input[1])}.scale")
    elif node.op_type == "Gather" and node.input[0] in axes:
        yield from _lookup(node)
    elif node.op_type == "Transpose" and node.input[0] in axes:
        transpose = onnx.NodeProto()
        transpose.CopyFrom(node)
        transpose.input[0], transpose.output[0] = f"{node.input[0]}.int8", f"{node.output[0]}.int8"
        yield transpose
    else:
        yield node


def _product(node: onnx.NodeProto, *, scale: str) -> Nodes:
    """Multiply 8-bit inputs by 8-bit weights into 32 bits and rescale by both scales."""
    (x, weight), (out,) = node.input, node.output
    parts = [f"{x}.uint8", f"{x}.scale", f"{x}.zero"]
    yield _make("DynamicQuantizeLinear", [x], parts)
    yield _make("MatMulInteger", [parts[0], f"{weight}.int8", parts[2]], [f"{out}.int32"])
    yield _make("Cast", [f"{out}.int32"], [f"{out}.float"], to=onnx.TensorProto.FLOAT)
    yield _make("Mul", [parts[1], scale], [f"{out}.scale"])
    yield _make("Mul", [f"{out}.float", f"{out}.scale"], [out])


def _lookup(node: onnx.NodeProto) -> Nodes:
    """Look up rows and their scales, and multiply them."""
    (table, index), (out,) = node.input, node.output
    yield _make("Gather", [f"{table}.int8", index], [f"{out}.int8"])
    yield _make("Gather", [f"{table}.scale", index], [f"{out}.scale"])
    yield _make("Unsqueeze", [f"{out}.scale", _LAST_AXIS], [f"{out}.scales"])
    yield _make("Cast", [f"{out}.int8"], [f"{out}.float"], to=onnx.TensorProto.FLOAT)
    yield _make("Mul", [f"{out}.float", f"{out}.scales"], [out])


def _eight_bits(tensor: onnx.TensorProto, axis: int, *, bits: int) -> list[onnx.TensorProto]:
    weight = onnx.numpy_helper.to_array(tensor)
    largest = np.abs(weight).max(axis=axis, keepdims=True)
    scale = np.maximum(largest, np.finfo(np.float32).tiny) / (2 ** (bits - 1) - 1)
    rounded = np.rint(weight / scale).astype(np.int8)
    return [
        onnx.numpy_helper.from_array(rounded, f"{tensor.name}.int8"),
        onnx.numpy_helper.from_array(scale.squeeze(axis), f"{tensor.name}.scale"),
    ]
