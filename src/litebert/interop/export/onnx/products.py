"""Count the products with a weight, in float and in int8: a file can be int8 in name only."""

from __future__ import annotations

from dataclasses import dataclass

from litebert.errors import LitebertError
from litebert.interop.export.onnx.runtime import onnx

_FLOAT = ("MatMul", "Gemm", "Einsum", "Conv")
_INTEGER = ("MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")


@dataclass(frozen=True)
class Products:
    """How many products have a constant operand, by the arithmetic they are computed in."""

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
