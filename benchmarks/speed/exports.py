"""One network with random weights, written in the format of every rival.

ROOT/model            litebert's own folder, which transformers reads too ROOT/int8
litebert's in eight bits ROOT/*.onnx, *.xml    onnxruntime's and OpenVINO's, from
transformers' model, fp32 and int8
"""

import itertools
import logging
import shutil
from pathlib import Path

import onnx
import onnxruntime
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic

from benchmarks.texts import VOCABULARY, Texts, arriving, made_up
from litebert.config import preset
from litebert.fast import calibrate, to_int8
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.nn import AlbertForPretraining, Batch
from litebert.tokenizer import Tokenizer

CALIBRATION = {"SST-2": 3, "NLI": 3, "IMDB": 1}
"""Batches of 16 texts, none of which is timed later."""
SKIPPED = 10_000, 3_000, 5_000
EXAMPLE = tuple(
    torch.from_numpy(values)
    for values in made_up([8, 8], vocab_size=1_000).padded().values()
)
BERT_SHAPES = {"minilm-l6": (6, 384, 12), "bert-base": (12, 768, 12)}
"""Layers, hidden size and heads of all-MiniLM-L6-v2 and of BERT-base, which are not
presets of ours.
"""


def count_products(model: onnx.ModelProto) -> tuple[int, int]:
    """Return how many products have a constant operand, in float and in int8.

    Constants are followed through the graph, so that a transposed or rescaled weight
    counts, too.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    floating = integer = 0
    for node in model.graph.node:
        is_constant = [name in constants for name in node.input if name]
        if all(is_constant):
            constants.update(node.output)
        elif any(is_constant[:2]):
            floating += node.op_type in ("MatMul", "Gemm", "Einsum", "Conv")
            integer += (
                "Quantize" in node.op_type
                or "Integer" in node.op_type
                or node.op_type == "QLinearMatMul"
            )
    return floating, integer


def export_all(root: Path, shape: str) -> None:
    """Write the formats of a network that are not there yet, and litebert's int8.

    `shape` is one of our presets or of BERT_SHAPES.
    """
    model = root / "model"
    if not model.exists():
        if shape in BERT_SHAPES:  # as transformers writes it
            torch.manual_seed(1)
            layers, hidden, heads = BERT_SHAPES[shape]
            sizes = {
                "num_hidden_layers": layers,
                "hidden_size": hidden,
                "num_attention_heads": heads,
            }
            config = transformers.BertConfig(**sizes, intermediate_size=4 * hidden)
            transformers.BertModel(config).save_pretrained(model)
        else:
            write_folder(
                ModelFolder(
                    AlbertForPretraining(
                        preset(shape), generator=torch.Generator().manual_seed(1)
                    )
                ),
                model,
            )
        if VOCABULARY.is_file():
            Tokenizer.load(VOCABULARY).save(model)
    if not (root / "int8.xml").exists():
        export_onnx(model, root, is_quantised=True)
        export_openvino(model, root, is_quantised=True)
    shutil.rmtree(root / "int8", ignore_errors=True)
    # what `litebert quantize` does, with the texts that NNCF gets
    network = read_folder(model).network
    batches = [
        Batch.from_lists(texts.ids, texts.segments) for texts in calibration_texts()
    ]
    to_int8(network, calibrate(network.albert, batches))
    write_folder(ModelFolder(network), root / "int8")
    if VOCABULARY.is_file():
        Tokenizer.load(VOCABULARY).save(root / "int8")


class LastHiddenState(torch.nn.Module):
    """transformers' encoder with one output; the pooler is left out."""

    def __init__(self, model: Path) -> None:
        super().__init__()
        self.encoder = transformers.AutoModel.from_pretrained(
            model, add_pooling_layer=False
        ).eval()

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor
    ) -> torch.Tensor:
        return self.encoder(ids, mask, segments).last_hidden_state


def export_onnx(model: Path, root: Path, *, is_quantised: bool) -> None:
    """Export with free batch and length; fold constants and quantize if asked.

    Shared weights are behind a transposition, so `quantize_dynamic` as documented finds
    1 of 73 products; after constants are folded, it finds all, which is checked.
    """
    axes = {
        0: torch.export.Dim("batch", max=4_096),
        1: torch.export.Dim("length", min=2, max=512),
    }
    names = {
        "input_names": list(made_up([1]).padded()),
        "output_names": ["last_hidden_state"],
    }
    shapes = (axes,) * 3
    program = torch.onnx.export(
        LastHiddenState(model).eval(),
        EXAMPLE,
        dynamo=True,
        dynamic_shapes=shapes,
        verbose=False,
        **names,
    )
    assert program is not None
    program.save(root / "fp32.onnx", external_data=False)
    if not is_quantised:
        return
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    )
    options.optimized_model_filepath = str(root / "folded.onnx")
    onnxruntime.InferenceSession(root / "fp32.onnx", options)
    logging.getLogger().setLevel(logging.ERROR)
    quantize_dynamic(
        root / "folded.onnx",
        root / "int8.onnx",
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    model = onnx.load(root / "int8.onnx")
    floating, integer = count_products(model)
    assert integer and not floating, "an int8 rival must be int8 in all its products"
    print(f"onnxruntime int8: {floating} products in float, {integer} in int8")


def export_openvino(model: Path, root: Path, *, is_quantised: bool) -> None:
    """Convert; quantize with NNCF, if asked, on real texts if they are available."""
    import openvino

    converted = openvino.convert_model(
        LastHiddenState(model).eval(), example_input=EXAMPLE
    )
    openvino.save_model(converted, root / "fp32.xml", compress_to_fp16=False)
    if not is_quantised:
        return
    import nncf

    texts = (
        zip(batch.ids, batch.segments, strict=True) for batch in calibration_texts()
    )
    rows = [
        Texts((ids,), (segments,)).padded().values()
        for ids, segments in itertools.chain(*texts)
    ]
    nncf.set_log_level(logging.ERROR)
    given = nncf.Dataset([dict(enumerate(row)) for row in rows])
    quantized = nncf.quantize(
        converted, given, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(rows)
    )
    openvino.save_model(quantized, root / "int8.xml", compress_to_fp16=False)


def calibration_texts() -> list[Texts]:
    """Return texts from far behind those that are timed; made-up ones if there are
    none.
    """
    if not VOCABULARY.is_file():
        return [made_up([64] * 16, seed=seed) for seed in range(4)]
    chosen = zip(CALIBRATION.items(), SKIPPED, strict=True)
    return [
        each
        for (corpus, count), skip in chosen
        for each in arriving(corpus, num_batches=count, skip=skip)
    ]
