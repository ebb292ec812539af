"""One network with random weights, written in the format of every rival.

- ROOT/model: litebert's own folder, which transformers reads too;
- ROOT/int8: litebert's in eight bits;
- ROOT/*.onnx and *.xml: onnxruntime's and OpenVINO's, from transformers' model, in fp32
  and int8.
"""

import logging
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic

from benchmarks.texts import VOCABULARY, Texts, arriving, made_up
from litebert.config import preset
from litebert.fast import calibrate, to_int8
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.nn import AlbertForPretraining, Batch
from litebert.tokenizer import Tokenizer

CALIBRATION = {"SST-2": (3, 10_000), "NLI": (3, 3_000), "IMDB": (1, 5_000)}
"""Batches of 16 texts, and how many texts before them are skipped: none of them is
timed later.
"""
_RECTANGLE = made_up([8, 8], vocab_size=1_000).padded()
EXAMPLE = tuple(map(torch.from_numpy, _RECTANGLE.values()))
BERT_SHAPES = {"minilm-l6": (6, 384, 12), "bert-base": (12, 768, 12)}
"""Layers, hidden size and heads of all-MiniLM-L6-v2 and of BERT-base, which are not
presets of ours.
"""


FLOAT_PRODUCTS = ("MatMul", "Gemm", "Einsum", "Conv")
INT8_PRODUCT = re.compile(r"Quantize|Integer|^QLinearMatMul$")


def count_products(model: onnx.ModelProto) -> tuple[int, int]:
    """Return how many products have a constant operand, in float and in int8.

    Constants are followed through the graph, so that a transposed or rescaled weight
    counts, too.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    num_float = 0
    num_int8 = 0
    for node in model.graph.node:
        is_constant = [name in constants for name in node.input if name]
        if all(is_constant):
            constants.update(node.output)
        elif any(is_constant[:2]):
            num_float += node.op_type in FLOAT_PRODUCTS
            num_int8 += INT8_PRODUCT.search(node.op_type) is not None
    return num_float, num_int8


def export_all(root: Path, shape: str) -> None:
    """Write the formats of a network that are not there yet, and litebert's int8.

    `shape` is one of our presets or of BERT_SHAPES.
    """
    model = root / "model"
    if not model.exists():
        if shape in BERT_SHAPES:
            _write_bert(model, shape)
        else:
            generator = torch.Generator().manual_seed(1)
            network = AlbertForPretraining(preset(shape), generator=generator)
            write_folder(ModelFolder(network), model)
        _add_vocabulary(model)
    if not (root / "int8.xml").exists():
        export_onnx(model, root, is_quantised=True)
        export_openvino(model, root, is_quantised=True)
    shutil.rmtree(root / "int8", ignore_errors=True)
    _write_int8(model, root / "int8")


def _write_bert(model: Path, shape: str) -> None:
    """Write a BERT as transformers does."""
    torch.manual_seed(1)
    layers, hidden, heads = BERT_SHAPES[shape]
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    transformers.BertModel(config).save_pretrained(model)


def _write_int8(model: Path, out: Path) -> None:
    """Do what `litebert quantize` does, with the texts that NNCF gets."""
    network = read_folder(model).network
    batches = list[Batch]()
    for texts in calibration_texts():
        batches.append(Batch.from_lists(texts.ids, texts.segments))
    to_int8(network, calibrate(network.albert, batches))
    write_folder(ModelFolder(network), out)
    _add_vocabulary(out)


def _add_vocabulary(folder: Path) -> None:
    if VOCABULARY.is_file():
        Tokenizer.load(VOCABULARY).save(folder)


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
    program = torch.onnx.export(
        LastHiddenState(model).eval(),
        EXAMPLE,
        input_names=list(_RECTANGLE),
        output_names=["last_hidden_state"],
        dynamo=True,
        dynamic_shapes=(axes,) * len(EXAMPLE),
        verbose=False,
    )
    assert program is not None
    program.save(root / "fp32.onnx", external_data=False)
    if is_quantised:
        _quantize_onnx(root)


def _quantize_onnx(root: Path) -> None:
    """Fold the constants of fp32.onnx, quantize, and count the products."""
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
    num_float, num_int8 = count_products(onnx.load(root / "int8.onnx"))
    assert num_int8 and not num_float, "an int8 rival must be int8 in all its products"
    print(f"onnxruntime int8: {num_float} products in float, {num_int8} in int8")


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

    examples = list[dict[int, NDArray[np.int64]]]()  # of one text, inputs by number
    for batch in calibration_texts():
        for ids, segments in zip(batch.ids, batch.segments, strict=True):
            inputs = Texts((ids,), (segments,)).padded().values()
            examples.append(dict(enumerate(inputs)))
    nncf.set_log_level(logging.ERROR)
    quantized = nncf.quantize(
        converted,
        nncf.Dataset(examples),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(examples),
    )
    openvino.save_model(quantized, root / "int8.xml", compress_to_fp16=False)


def calibration_texts() -> list[Texts]:
    """Return texts from far behind those that are timed; made-up ones if there are
    none.
    """
    if not VOCABULARY.is_file():
        return [made_up([64] * 16, seed=seed) for seed in range(4)]
    batches = list[Texts]()
    for corpus, (number, skip) in CALIBRATION.items():
        batches += arriving(corpus, num_batches=number, skip=skip)
    return batches
