"""One ONNX file: the network's numbers at every shape, each weight once, nothing else needed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from litebert.interop.export.onnx import OnnxReport
from litebert.interop.export.onnx.graph import OPSETS, to_graph
from litebert.interop.export.onnx.runtime import start
from litebert.interop.export.ragged import ragged_outputs
from litebert.interop.export.readers import padded
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer

Network = AlbertForPretraining | AlbertForTask
OUTPUTS = {
    "pretraining": ("prediction_logits", "sop_logits"),
    "question-answering": ("start_logits", "end_logits"),
    "conditional-question-answering": (*("start_logits", "start_top_index", "end_logits", "no_answer_logits"),),
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
    run = start(report.output.read_bytes())
    shortest = 5 if kind.startswith("conditional") else 1
    for batch, length in ((1, shortest), (1, 17), (3, 40), (2, 512)):
        inputs = _inputs(kind, batch, length)
        outputs = run(inputs)
        starts = outputs.get("start_top_index")
        expected = ragged_outputs(network, inputs, outputs, starts=starts)
        for name, values in expected.items():
            assert outputs[name].shape == values.shape
            real = values > -1e29
            np.testing.assert_allclose(outputs[name][real], values[real], rtol=1e-4, atol=2e-5)


def test_each_weight_is_in_the_file_once(
    exported: Callable[[str], OnnxReport], folder_of: Callable[[str], Path]
) -> None:
    report = exported("pretraining")
    assert report.output.stat().st_size < (folder_of("pretraining") / "model.safetensors").stat().st_size + 20_000
    assert report.output.parent.joinpath("model.onnx.data").exists() is False
    graph = onnx.load(report.output).graph
    shapes = [tuple(t.dims) for t in graph.initializer if len(t.dims) == 2]
    for shape in ((700, 16), (32, 96), (32, 48), (48, 32)):
        assert shapes.count(shape) == 1
    (table,) = [t.name for t in graph.initializer if tuple(t.dims) == (700, 16)]
    readers = [node.op_type for node in graph.node if table in node.input]
    assert sorted(readers) == ["Gather", "Transpose"]


def test_axes_have_names_and_no_sizes(exported: Callable[[str], OnnxReport]) -> None:
    graph = onnx.load(exported("multiple-choice").output).graph
    axes = [[d.dim_param for d in i.type.tensor_type.shape.dim] for i in graph.input]
    assert axes == [["batch", "choices", "length"]] * 3
    assert [d.dim_param for d in graph.output[0].type.tensor_type.shape.dim] == ["batch", "choices"]


def test_the_file_says_nothing_about_the_machine_that_wrote_it(exported: Callable[[str], OnnxReport]) -> None:
    data = exported("pretraining").output.read_bytes()
    assert b".py" not in data
    assert b"stack" not in data


def test_the_tokenizer_and_the_configuration_lie_beside_the_file(
    exported: Callable[[str], OnnxReport], folder_of: Callable[[str], Path]
) -> None:
    report = exported("question-answering")
    beside = {path.name for path in report.output.parent.iterdir()}
    assert beside == {*("model.onnx", "config.json", "spiece.model", "tokenizer.json", "tokenizer_config.json")}
    text = "Anna walked to the river."
    theirs = Tokenizer.load(folder_of("question-answering")).encode(text)
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
