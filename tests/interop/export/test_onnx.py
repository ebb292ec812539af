"""One ONNX file: the network's numbers at every shape, each weight once, int8 that is int8, refused where it is not."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from litebert.cli import run
from litebert.cli.help import schema_of
from litebert.errors import LitebertError
from litebert.interop.export.network import padded
from litebert.interop.export.onnx import OPSETS, count_products, quantise, require_integer, start, to_graph
from litebert.interop.export.program import OUR_TEXTS, compare, padded_batches, ragged_outputs
from litebert.interop.reports import OnnxReport, Products
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer

Network = AlbertForPretraining | AlbertForTask
OUTPUTS = {
    "pretraining": ("prediction_logits", "sop_logits"),
    "conditional-question-answering": ("start_logits", "start_top_index", "end_logits", "no_answer_logits"),
    "multiple-choice": ("logits",),
    "vector-classification": ("logits",),
}


def _inputs(kind: str, batch: int, length: int) -> dict[str, np.ndarray]:
    shape = (batch, 3, length) if kind == "multiple-choice" else (batch, length)
    generator = np.random.Generator(np.random.PCG64(batch * length))
    ids = generator.integers(5, 90, shape)
    mask = np.ones_like(ids)
    mask[-1, ..., length // 2 + 4 :] = 0
    segments = np.zeros_like(ids)
    segments[..., length // 3 :] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments * mask}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_onnxruntime_gives_the_ragged_networks_numbers_at_every_shape(
    exported: Callable[[str], OnnxReport], build: Callable[..., Network], kind: str
) -> None:
    report, network = exported(kind), build(kind)
    assert report.outputs == OUTPUTS[kind]
    assert report.rows[1].parity.max_difference < 1e-4
    call = start(report.output.read_bytes())
    shortest = 5 if kind.startswith("conditional") else 1
    for batch, length in ((1, shortest), (1, 17), (3, 40), (2, 512)):
        inputs = _inputs(kind, batch, length)
        outputs = call(inputs)
        starts = outputs.get("start_top_index")
        expected = ragged_outputs(network, inputs, outputs, starts=starts)
        for name, values in expected.items():
            assert outputs[name].shape == values.shape
            real = values > -1e29
            np.testing.assert_allclose(outputs[name][real], values[real], rtol=1e-4, atol=2e-5)


def test_the_file_has_each_weight_once_no_paths_and_the_tokenizer_beside_it(
    exported: Callable[[str], OnnxReport], folder_of: Callable[[str], Path]
) -> None:
    report = exported("pretraining")
    assert report.output.stat().st_size < (folder_of("pretraining") / "model.safetensors").stat().st_size + 20_000
    graph = onnx.load(report.output).graph
    shapes = [tuple(t.dims) for t in graph.initializer if len(t.dims) == 2]
    for shape in ((700, 16), (32, 96), (32, 48), (48, 32)):
        assert shapes.count(shape) == 1
    (table,) = [t.name for t in graph.initializer if tuple(t.dims) == (700, 16)]
    readers = [node.op_type for node in graph.node if table in node.input]
    assert sorted(readers) == ["Gather", "Transpose"]
    data = report.output.read_bytes()  # it says nothing about the machine that wrote it
    assert b".py" not in data and b"stack" not in data
    beside = {path.name for path in report.output.parent.iterdir()}
    assert beside == {"model.onnx", "config.json", "spiece.model", "tokenizer.json", "tokenizer_config.json"}
    text = "Anna walked to the river."
    theirs = Tokenizer.load(folder_of("pretraining")).encode(text)
    assert Tokenizer.load(report.output.parent).encode(text).ids == theirs.ids


def test_the_oldest_opset_runs_and_partial_sharing_keeps_its_blocks(build: Callable[..., Network]) -> None:
    network = build(sharing="attention")
    model = to_graph(padded(network, has_head=False), opset=OPSETS[0])
    assert [each.version for each in model.opset_import] == [OPSETS[0]]
    shapes = [tuple(t.dims) for t in model.graph.initializer]
    assert (shapes.count((32, 96)), shapes.count((32, 48))) == (1, 2)
    inputs = _inputs("pretraining", 2, 9)
    outputs = start(model.SerializeToString())(inputs)
    expected = ragged_outputs(network, inputs, outputs)
    np.testing.assert_allclose(outputs["pooler_output"], expected["pooler_output"], atol=1e-5)


# --- int8 ---


def _graph(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", None])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", None])
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "test", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("kind", "num_products"), [("pretraining", 13), ("conditional-question-answering", 15), ("multiple-choice", 11)]
)
def test_every_product_with_a_weight_is_in_integers_and_near_the_network(
    exported: Callable[[str], OnnxReport],
    build: Callable[..., Network],
    tokenizer: Tokenizer,
    kind: str,
    num_products: int,
) -> None:
    model = onnx.load(exported(kind).output)
    assert count_products(model) == Products(floating=num_products, integer=0)
    small = quantise(model)
    assert require_integer(small) == Products(floating=0, integer=num_products)
    operators = [node.op_type for node in small.graph.node]
    assert operators.count("MatMulInteger") == num_products
    assert operators.count("MatMul") == 4  # scores and mixtures of two steps: no weights
    tensors = small.graph.initializer
    large = [t.name for t in tensors if t.data_type == TensorProto.FLOAT and len(t.dims) > 1]
    assert large == ["encoder.position"]
    if kind != "pretraining":
        return
    shapes = [tuple(t.dims) for t in tensors if t.data_type == TensorProto.INT8]
    for shape in ((700, 16), (32, 96), (32, 32), (32, 48), (48, 32)):
        assert shapes.count(shape) == (2 if shape == (32, 32) else 1)  # attention output, pooler
    network = build(kind)
    batches = list(padded_batches(OUR_TEXTS, tokenizer, padded(network)))
    near = compare(start(small.SerializeToString()), network, batches)
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


def test_one_forgotten_product_among_integers_is_refused() -> None:
    for nodes, constants in FLOAT_GRAPHS.values():
        with pytest.raises(LitebertError, match="LB-759"):
            require_integer(_graph(nodes, constants))
    model = quantise(_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], WEIGHT))
    assert require_integer(model) == Products(floating=0, integer=1)
    model.graph.node.append(helper.make_node("MatMul", ["y", "v"], ["z"]))
    model.graph.initializer.append(numpy_helper.from_array(np.eye(3, dtype=np.float32), "v"))
    assert count_products(model) == Products(floating=1, integer=1)
    with pytest.raises(LitebertError, match="LB-759"):
        require_integer(model)


# --- the command ---


def test_export_onnx_prints_size_agreement_and_times_of_every_runtime(
    folder_of: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("It rained.\tAll day.\nWho came?\n", encoding="utf-8")
    threads = torch.get_num_threads()
    words = ["export", "onnx", str(folder_of("sequence-classification")), str(tmp_path / "out" / "model.onnx")]
    assert run([*words, "--int8", "--opset", str(OPSETS[-1]), "--texts", str(tmp_path / "texts.txt")]) == 0
    shown = capsys.readouterr().out
    assert "0 products with weights in float, 11 in int8" in shown
    head, *rows = [line.split() for line in shown.splitlines()[3:7]]
    assert head[-6:] == ["1x16", "ms", "1x128", "ms", "8x128", "ms"]
    assert [" ".join(row[:-8]) or row[0] for row in rows] == ["litebert", "onnxruntime fp32", "onnxruntime int8"]
    assert all(float(cell) > 0 for row in rows for cell in row[-3:])
    assert torch.get_num_threads() == threads

    output = tmp_path / "model.onnx"
    words = ["export", "onnx", str(folder_of("token-classification")), str(output), "--no-latency", "--json"]
    assert run(words) == 0
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, schema_of("export onnx"))
    assert (report["outputs"], report["head"]) == (["logits"], "token-classification")
    assert report["products"] == {"floating": 10, "integer": 0}
    ours, exported = report["rows"]
    assert (ours["parity"], exported["bytes"], exported["milliseconds"]) == (None, output.stat().st_size, {})
    assert exported["parity"]["max_difference"] < 1e-4 and exported["parity"]["same_choice"] == 1.0
