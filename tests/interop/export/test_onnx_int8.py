"""Int8 that is int8: counted, stored once, near the network, and refused where it is not."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from litebert.errors import LitebertError
from litebert.interop.export.onnx import OnnxReport
from litebert.interop.export.onnx.export import Products, count_products, require_integer
from litebert.interop.export.onnx.int8 import quantise
from litebert.interop.export.onnx.runtime import start
from litebert.interop.export.parity import compare
from litebert.interop.export.readers import padded
from litebert.interop.export.samples import OUR_TEXTS, padded_batches
from litebert.nn import AlbertForTask
from litebert.tokenizer import Tokenizer


def _graph(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", None])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", None])
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "test", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("kind", "num_products"), [("pretraining", 13), ("conditional-question-answering", 15), ("multiple-choice", 11)]
)
def test_every_product_with_a_weight_is_in_integers(
    exported: Callable[[str], OnnxReport], kind: str, num_products: int
) -> None:
    model = onnx.load(exported(kind).output)
    assert count_products(model) == Products(floating=num_products, integer=0)
    small = quantise(model)
    assert require_integer(small) == Products(floating=0, integer=num_products)
    operators = [node.op_type for node in small.graph.node]
    assert operators.count("MatMulInteger") == num_products
    assert operators.count("MatMul") == 4  # scores and mixtures of two steps: no weights


def test_each_weight_is_stored_once_in_a_quarter_of_the_bytes(exported: Callable[[str], OnnxReport]) -> None:
    tensors = quantise(onnx.load(exported("pretraining").output)).graph.initializer
    small = [tuple(t.dims) for t in tensors if t.data_type == TensorProto.INT8]
    for shape in ((700, 16), (32, 96), (32, 32), (32, 48), (48, 32)):
        assert small.count(shape) == (2 if shape == (32, 32) else 1)  # attention output, pooler
    large = [t.name for t in tensors if t.data_type == TensorProto.FLOAT and len(t.dims) > 1]
    assert large == ["encoder.position"]


@pytest.mark.parametrize("kind", ["pretraining", "question-answering"])
def test_outputs_stay_near_those_of_the_network(
    exported: Callable[[str], OnnxReport], build: Callable[..., AlbertForTask], tokenizer: Tokenizer, kind: str
) -> None:
    network = build(kind)
    run = start(quantise(onnx.load(exported(kind).output)).SerializeToString())
    batches = list(padded_batches(OUR_TEXTS, tokenizer, padded(network)))
    near = compare(run, network, batches)
    assert near.correlation > 0.99
    assert 0 < near.max_difference < 0.15 * near.scale


@settings(deadline=None, max_examples=40)
@given(shape=st.tuples(*[st.integers(1, 24)] * 3), seed=st.integers(0, 999), scale=st.sampled_from([1e-3, 1.0, 50.0]))
def test_a_product_is_off_by_no_more_than_its_rounding(shape: tuple[int, int, int], seed: int, scale: float) -> None:
    rows, inner, columns = shape
    generator = np.random.Generator(np.random.PCG64(seed))
    x = generator.normal(0, scale, (rows, inner)).astype(np.float32)
    weight = generator.normal(size=(inner, columns)).astype(np.float32)
    model = _graph([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight})
    y = start(quantise(model).SerializeToString())({"x": x})["y"]
    x_step = (max(x.max(), 0) - min(x.min(), 0)) / 255
    w_step = np.abs(weight).max(0) / 127
    limit = x_step * np.abs(weight).sum(0) + (np.abs(x) + x_step).sum(1)[:, None] * w_step / 2
    assert (np.abs(y - x @ weight) <= 1.01 * limit + 1e-6 * scale).all()


def test_a_column_of_zeros_stays_zero() -> None:
    weight = np.array([[1.0, 0.0], [2.0, 0.0]], dtype=np.float32)
    model = _graph([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight})
    y = start(quantise(model).SerializeToString())({"x": np.ones((1, 2), np.float32)})["y"]
    np.testing.assert_allclose(y, [[3.0, 0.0]], atol=0.02)


WEIGHT = {"w": np.eye(3, dtype=np.float32)}
QUANTISED = {"w": np.eye(3, dtype=np.int8), "s": np.float32(1), "z": np.int8(0)}
FLOAT_GRAPHS = {
    "plain": ([helper.make_node("MatMul", ["x", "w"], ["y"])], WEIGHT),
    "gemm": ([helper.make_node("Gemm", ["x", "w"], ["y"])], WEIGHT),
    "behind a transpose and an identity": (
        [
            helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
            helper.make_node("Identity", ["t"], ["i"]),
            helper.make_node("MatMul", ["x", "i"], ["y"]),
        ],
        WEIGHT,
    ),
    "stored in int8, multiplied in float": (
        [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"]), helper.make_node("MatMul", ["x", "f"], ["y"])],
        QUANTISED,
    ),
}


@pytest.mark.parametrize("name", FLOAT_GRAPHS)
def test_a_product_left_in_float_is_refused_with_the_counts(name: str) -> None:
    with pytest.raises(LitebertError, match="LB-759") as caught:
        require_integer(_graph(*FLOAT_GRAPHS[name]))
    assert caught.value.received == "1 in float, 0 in int8"


def test_one_forgotten_product_among_integers_is_refused() -> None:
    model = quantise(_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], WEIGHT))
    assert require_integer(model) == Products(floating=0, integer=1)
    model.graph.node.append(helper.make_node("MatMul", ["y", "v"], ["z"]))
    model.graph.initializer.append(numpy_helper.from_array(np.eye(3, dtype=np.float32), "v"))
    assert count_products(model) == Products(floating=1, integer=1)
    with pytest.raises(LitebertError, match="LB-759"):
        require_integer(model)


def test_products_of_activations_do_not_count() -> None:
    assert count_products(_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], {})) == Products(0, 0)
