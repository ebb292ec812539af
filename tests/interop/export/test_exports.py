"""ONNX files: equal outputs at every shape, each weight stored once, int8 in integers."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, write_folder
from litebert.interop import ExportReport
from litebert.interop.export.check import require_near
from litebert.interop.export.network import allowed_positions, pad_network
from litebert.interop.export.onnx import export_onnx, quantize, runner, to_graph
from litebert.interop.export.source import SourceModel, write_beside
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch
from litebert.tokenizer import Tokenizer, train_tokenizer
from tests.contract.shell import assert_matches_schema, litebert
from tests.networks import SHAPE

CONFIG = AlbertConfig(
    **SHAPE
    | {
        "vocab_size": 700,
        "num_hidden_layers": 2,
        "max_position_embeddings": 512,
    }
)
OUTPUTS = {  # by the kind of head
    "pretraining": ("prediction_logits", "sop_logits"),
    **dict.fromkeys(
        (f"{what}-classification" for what in ("sequence", "vector", "token")),
        ("logits",),
    ),
    "multiple-choice": ("logits",),
    "question-answering": ("start_logits", "end_logits"),
    "conditional-question-answering": (
        "start_logits",
        "start_top_index",
        "end_logits",
        "no_answer_logits",
    ),
}
PLANS = [
    {},
    {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    *(
        {"sharing": "attention"},
        {"sharing": "ffn", "inner_group_num": 2},
        {"sharing": "none"},
    ),
    {"embedding_size": 32},
    {"embedding_size": 32, "embedding_projection": True, "hidden_act": "relu"},
]
Network = AlbertForPretraining | AlbertForTask
Arrays = dict[str, np.ndarray]
Folders = Callable[[str], Path]  # by the kind of head
Exports = Callable[[str, str], ExportReport]  # of a kind of head, under a name


def build(kind: str = "pretraining", **changes: object) -> Network:
    """Build a network whose weights are large enough that a mistake shows."""
    config = CONFIG.model_copy(update=changes)
    labels = ("bad", "fair", "good") if kind.endswith("classification") else ()
    head = None if kind == "pretraining" else HeadConfig(kind=kind, labels=labels)
    network = AlbertForTask(config, head) if head else AlbertForPretraining(config)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in network.named_parameters():
        torch.nn.init.normal_(
            parameter,
            1.0 if name.endswith("norm.weight") else 0.0,
            0.3,
            generator=generator,
        )
    return network.eval()


@pytest.fixture(scope="module")
def tokenizer(stories: Path) -> Tokenizer:
    return Tokenizer.from_model(
        train_tokenizer(stories.read_text(encoding="utf-8").splitlines(), vocab_size=90)
    )


@pytest.fixture(scope="module")
def folder_of(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Folders:
    """Return a function that writes the model folder of a kind of head, once, and
    returns it.
    """

    @cache
    def folder(kind: str) -> Path:
        place = tmp_path_factory.mktemp(kind)
        write_folder(ModelFolder(build(kind)), place)
        tokenizer.save(place)
        return place

    return folder


@pytest.fixture(scope="module")
def exported(folder_of: Folders) -> Exports:
    """Return a function that exports the folder of a kind of head, once, into a folder
    below.
    """

    @cache
    def export(kind: str, name: str) -> ExportReport:
        return export_onnx(folder_of(kind), folder_of(kind) / "out" / name)

    return export


def _source(kind: str, tokenizer: Tokenizer) -> SourceModel:
    network = build(kind)
    return SourceModel(network, pad_network(network), tokenizer)


def _inputs(kind: str, batch: int, length: int) -> Arrays:
    """Return ids, mask and segments; the last sequence is shorter, if it can be."""
    shape = (batch, 3, length) if kind == "multiple-choice" else (batch, length)
    ids = np.random.Generator(np.random.PCG64(batch * length)).integers(5, 90, shape)
    mask = np.ones_like(ids)
    segments = np.zeros_like(ids)
    mask[-1, ..., length // 2 + 4 :] = 0
    segments[..., length // 3 :] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments * mask}


@torch.no_grad()
def _assert_equal(outputs: Arrays, network: Network, inputs: Arrays) -> None:
    """Compare with the ragged network, on real tokens."""
    ids, mask, segments = (torch.from_numpy(x).flatten(0, -2) for x in inputs.values())
    batch = Batch.from_padded(ids, mask, segments)
    if isinstance(network, AlbertForPretraining):
        both = network(batch, torch.arange(len(batch.ids)))
        computed = {
            "prediction_logits": both.masked_lm,
            "sop_logits": both.sentence_order,
        }
    elif "start_top_index" in outputs:
        starts = torch.from_numpy(outputs["start_top_index"])
        hidden = batch.to_padded(network.albert(batch), width=mask.shape[1])
        spans = network.head(hidden, allowed_positions(mask, segments), starts)
        computed = {
            "start_logits": spans.start,
            "end_logits": spans.end,
            "no_answer_logits": spans.no_answer,
        }
    else:
        logits = network(batch)
        names = network.head_config.record.logits
        computed = (
            {"logits": logits}
            if len(names) == 1
            else dict(zip(names, logits.unbind(-1), strict=True))
        )
    for name, values in computed.items():
        values = values.numpy()
        ours = outputs[name]
        # of tokens; spans are never on padding
        if ours.shape[:2] == mask.shape and len(values) == len(batch.ids):
            assert (
                name not in ("start_logits", "end_logits")
                or (ours[mask.numpy() == 0] < -1e29).all()
            )
            ours = ours[mask.numpy() == 1]
        np.testing.assert_allclose(
            ours.reshape(values.shape), values, rtol=1e-4, atol=3e-5
        )


# --- the network on rectangles --------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "plan"),
    [*(("pretraining", plan) for plan in PLANS), *((kind, {}) for kind in OUTPUTS)],
    ids=str,
)
def test_every_plan_and_head_gives_the_outputs_of_the_ragged_network(
    kind: str, plan: dict[str, object]
) -> None:
    network = build(kind, **plan)
    inputs = _inputs(kind, 2, 14)
    rectangle = pad_network(network)
    assert rectangle.output_names == OUTPUTS[kind]
    computed = rectangle(*map(torch.from_numpy, inputs.values()))
    _assert_equal(
        {n: x.numpy() for n, x in zip(OUTPUTS[kind], computed, strict=True)},
        network,
        inputs,
    )


def test_only_outputs_whose_weights_are_in_the_file_are_given() -> None:
    for missing, names in (
        (["sentence_order"], ("prediction_logits",)),
        (["albert.pooler"], ("prediction_logits",)),
        (["masked_lm"], ("sop_logits",)),
        (["masked_lm", "sentence_order"], ("last_hidden_state", "pooler_output")),
        (["masked_lm", "albert.pooler"], ("last_hidden_state",)),
    ):
        network = build()
        for part in missing:
            network.get_submodule(part).to("meta")
        assert pad_network(network).output_names == names


# --- files ----------------------------------------------------------------------------


IN_ONNX = (
    "pretraining",
    "question-answering",
    "conditional-question-answering",
    "multiple-choice",
    "vector-classification",
)


@pytest.mark.parametrize("kind", IN_ONNX)
def test_a_file_gives_the_ragged_networks_numbers_at_every_shape(
    exported: Exports, kind: str
) -> None:
    report = exported(kind, "model.onnx")
    assert report.outputs == OUTPUTS[kind] and report.parity.max_difference < 1e-4
    assert re.search(
        r"MB, gives .*logits.*\ndiffers by up to .*, correlation 1\.00000", str(report)
    )
    call = runner(report.output.read_bytes())
    for batch, length in (
        (1, 5 if kind.startswith("conditional") else 1),
        (1, 17),
        (3, 40),
        (2, 512),
    ):
        inputs = _inputs(kind, batch, length)
        _assert_equal(call(inputs), build(kind), inputs)


def test_the_file_has_each_weight_once_no_paths_and_the_tokenizer_next_to_it(
    exported: Exports,
) -> None:
    report = exported("pretraining", "model.onnx")
    weights = report.output.parents[1] / "model.safetensors"
    assert report.bytes < weights.stat().st_size + 20_000
    # it has no path of the machine that wrote it
    assert str(Path(torch.__file__).parent).encode() not in report.output.read_bytes()
    graph = onnx.load(report.output).graph
    shapes = [tuple(t.dims) for t in graph.initializer if len(t.dims) == 2]
    assert [
        shapes.count(shape) for shape in ((700, 16), (32, 96), (32, 48), (48, 32))
    ] == [1, 1, 1, 1]
    (table,) = [t.name for t in graph.initializer if tuple(t.dims) == (700, 16)]
    assert sorted(node.op_type for node in graph.node if table in node.input) == [
        "Gather",
        "Transpose",
    ]
    partial = to_graph(pad_network(build(sharing="attention"), has_head=False)).graph
    shapes = [tuple(t.dims) for t in partial.initializer]
    # a block of attention, two of feed-forward
    assert (shapes.count((32, 96)), shapes.count((32, 48))) == (1, 2)
    data = report.output.read_bytes()
    assert b".py" not in data and b"stack" not in data
    beside = {path.name for path in report.output.parent.iterdir()}
    assert beside == {
        "model.onnx",
        "config.json",
        "spiece.model",
        "tokenizer.json",
        "tokenizer_config.json",
    }


# --- int8 -----------------------------------------------------------------------------


def _reference(model: onnx.ModelProto) -> Callable[[Arrays], Arrays]:
    """Compute a graph as ONNX defines it; onnxruntime saturates products of bytes where
    the processor has no VNNI.
    """
    names = [output.name for output in model.graph.output]
    evaluator = ReferenceEvaluator(model)
    return lambda inputs: dict(zip(names, evaluator.run(None, inputs), strict=True))


PRODUCTS = {
    "pretraining": 13,
    "conditional-question-answering": 15,
    "multiple-choice": 11,
}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_products_with_weights_are_in_integers_and_accurate(
    exported: Exports, tokenizer: Tokenizer, kind: str
) -> None:
    small = quantize(onnx.load(exported(kind, "model.onnx").output))
    assert [node.op_type for node in small.graph.node].count(
        "MatMulInteger"
    ) == PRODUCTS[kind]
    tensors = small.graph.initializer
    large = [
        t.name for t in tensors if t.data_type == TensorProto.FLOAT and len(t.dims) > 1
    ]
    assert large == ["embedding.position.weight"]
    if kind == "pretraining":
        shapes = [tuple(t.dims) for t in tensors if t.data_type == TensorProto.INT8]
        for shape in ((700, 16), (32, 96), (32, 32), (32, 48), (48, 32)):
            # attention output, pooler
            assert shapes.count(shape) == (2 if shape == (32, 32) else 1)
        near = require_near(
            _reference(small),
            _source(kind, tokenizer),
            Path("small.onnx"),
            is_int8=True,
        )
        assert near.correlation > 0.99
        assert 0 < near.max_difference < 0.15 * near.scale


# --- what is refused, and leaves nothing behind ---------------------------------------


@torch.no_grad()
def test_what_cannot_be_exported_is_refused_and_nothing_is_touched(
    folder_of: Folders,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = folder_of("pretraining")
    bare = tmp_path / "bare"
    coarse = tmp_path / "coarse"
    write_folder(ModelFolder(build()), bare)
    network = build(num_hidden_layers=1)
    # a feature that is never read, but takes up the whole 8-bit range
    network.albert.embedding.norm.bias[0] = 1e5
    network.albert.embedding.projection.weight[:, 0] = 0
    write_folder(ModelFolder(network), coarse)
    tokenizer.save(coarse)
    (tmp_path / "old.onnx").write_bytes(b"old")
    before = sorted(tmp_path.rglob("*"))
    for folder, output, code in (
        (usual, "old.onnx", "LB-619"),
        (usual, "model.pt2", "LB-751"),
        (usual, "coarse/model.onnx", "LB-751"),  # next to another model
        (bare, "model.onnx", "LB-213"),
        (coarse, "model.onnx", "LB-755"),
    ):
        with pytest.raises(LitebertError, match=code):
            export_onnx(folder, tmp_path / output, int8=True)
        assert (
            sorted(tmp_path.rglob("*")) == before
            and (tmp_path / "old.onnx").read_bytes() == b"old"
        )
    monkeypatch.setattr("litebert.interop.export.onnx._FILE_LIMIT", 100)
    with pytest.raises(LitebertError, match="LB-474"):
        export_onnx(usual, tmp_path / "model.onnx")


def test_wrong_numbers_and_a_third_party_head_are_refused(tokenizer: Tokenizer) -> None:
    source = _source("token-classification", tokenizer)
    for error in (1e-6, 0.1, float("nan"), float("inf")):

        def run(inputs: Arrays, error: float = error) -> Arrays:
            (logits,) = source.padded(*map(torch.from_numpy, inputs.values()))
            logits[0, 0, 0] += error
            return {"logits": logits.detach().numpy()}

        with (
            (
                nullcontext()
                if error < 1e-4
                else pytest.raises(LitebertError, match="LB-755")
            ),
            torch.no_grad(),
        ):
            require_near(run, source, Path("model.onnx"))
    source.network.head = torch.nn.Identity()
    with pytest.raises(LitebertError, match="LB-470"):
        pad_network(source.network)


def test_the_json_of_an_export_matches_its_schema(
    folder_of: Folders, tmp_path: Path, monkeypatch
) -> None:
    # 33 MB from npm
    monkeypatch.setattr(
        "litebert.interop.export.web.read_runtime", lambda _: (b"", b"")
    )
    for kind, name, more, outputs in (
        ("onnx", "model.onnx", ["--encoder"], ["last_hidden_state"]),
        ("web", "", [], ["search"]),
    ):
        output = tmp_path / kind / name
        report = litebert(
            "export", kind, folder_of("token-classification"), output, *more, "--json"
        ).ok.json
        assert_matches_schema(f"export {kind}", report)
        files = [
            path
            for path in (output, *output.rglob("*"))
            if path.is_file() and path.name != "README.txt"
        ]
        size = sum(path.stat().st_size for path in files)
        assert (report["output"], report["outputs"], report["bytes"]) == (
            str(output),
            outputs,
            size,
        )


@pytest.mark.parametrize("num_written", [0, 1], ids=["at once", "later"])
def test_an_export_that_fails_leaves_nothing_beside_it(
    tmp_path: Path, num_written: int
) -> None:
    resource = pytest.importorskip("resource")
    kept = tmp_path / "config.json"
    kept.write_bytes(b"1")
    small = tmp_path / "1_Pooling" / "config.json"
    large = tmp_path / "1_Pooling" / "weights"
    if num_written:
        large = tmp_path / "tokenizer.json"
    pairs = [(small, b"2"), (large, b"3" * 9_999)]
    if not num_written:
        pairs.reverse()
    beside = {kept: b"1", **dict(pairs)}
    output = tmp_path / "model.onnx"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
        with pytest.raises(LitebertError, match="LB-001"):
            write_beside(beside, output, b"4")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [*tmp_path.iterdir()] == [kept]
    write_beside(beside, output, b"4")
    assert small.read_bytes() == b"2"
