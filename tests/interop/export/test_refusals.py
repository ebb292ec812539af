"""What cannot be exported is refused with a reason, and leaves nothing behind."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.config import PRESETS
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.interop.export.network import padded
from litebert.interop.export.onnx import export_onnx, onnx, require_weights_once, to_graph
from litebert.interop.export.program import (
    OUR_TEXTS,
    compare,
    export_program,
    padded_batches,
    read_texts,
    require_equal,
)
from litebert.interop.reports import Parity
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer

FolderOf = Callable[[str], Path]


def _refusal(folder: Path, output: Path, **options: object) -> str:
    before = sorted(output.parent.glob("*"))
    with pytest.raises(LitebertError) as caught:
        export_onnx(folder, output, has_latency=False, **options)
    assert sorted(output.parent.glob("*")) == before
    return caught.value.code


REFUSED = {
    "a file that exists": ("old.onnx", {}, "LB-751"),
    "a file for a folder": ("old.onnx/a.onnx", {}, "LB-751"),
    "a folder": ("folder.onnx", {}, "LB-751"),
    "no suffix": ("model", {}, "LB-751"),
    "another suffix": ("model.pt2", {}, "LB-751"),
    "an archive": ("model.ONNX.zip", {}, "LB-751"),
    "beside another model": ("taken/model.onnx", {}, "LB-752"),
    "a misspelt head": ("model.onnx", {"head": "token-clasification"}, "LB-750"),
    "a head that is not there": ("model.onnx", {"head": "pretraining"}, "LB-750"),
    "an old opset": ("model.onnx", {"opset": 17}, "LB-756"),
    "an opset that is none": ("model.onnx", {"opset": 10**9}, "LB-756"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused_and_nothing_is_touched(
    folder_of: FolderOf, tmp_path: Path, case: str
) -> None:
    output, options, code = REFUSED[case]
    (tmp_path / "old.onnx").write_bytes(b"old")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "config.json").write_text("{}")
    assert _refusal(folder_of("token-classification"), tmp_path / output, **options) == code
    assert (tmp_path / "old.onnx").read_bytes() == b"old"
    with pytest.raises(LitebertError, match="LB-751"):
        export_program(folder_of("token-classification"), tmp_path / "model.onnx")


def test_a_folder_that_cannot_be_exported_is_refused(
    folder_of: FolderOf, build: Callable[..., AlbertForPretraining], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    lacking = {"weights": (["model.safetensors"], "LB-602"), "words": (["spiece.model", "tokenizer.json"], "LB-213")}
    for folder, (names, code) in lacking.items():
        shutil.copytree(folder_of("pretraining"), tmp_path / folder)
        for name in names:
            (tmp_path / folder / name).unlink()
        assert _refusal(tmp_path / folder, tmp_path / "out" / "model.onnx") == code
    network = build(num_hidden_layers=1)
    with torch.no_grad():  # a feature that nobody reads, but that takes all 8-bit steps
        network.albert.embedding.norm.bias[0] = 1e5
        network.albert.embedding.projection.weight[:, 0] = 0
    local = build(num_hidden_layers=1, attention="local", attention_window=2)
    for each, options, code in ((network, {"int8": True}, "LB-760"), (local, {}, "LB-470")):
        save_model(each, tmp_path / code)
        tokenizer.save(tmp_path / code)
        assert _refusal(tmp_path / code, tmp_path / "out" / "model.onnx", **options) == code
    config = PRESETS["xxlarge-v2"].model_copy(update={"num_hidden_groups": 12})
    with torch.device("meta"), pytest.raises(LitebertError, match="LB-757"):  # more than fits in one file
        to_graph(padded(AlbertForPretraining(config)))


def test_a_graph_that_repeats_a_weight_is_refused(build: Callable[..., AlbertForTask]) -> None:
    network = padded(build("token-classification", vocab_size=2_000))
    table = network.encoder.word.weight.detach().numpy()
    model = onnx.ModelProto()
    for name in ("once", "twice"):
        model.graph.initializer.append(onnx.numpy_helper.from_array(table, name))
    require_weights_once(model, network)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "and again"))
    with pytest.raises(LitebertError, match="LB-758"):
        require_weights_once(model, network)


def test_wrong_numbers_are_refused(build: Callable[..., AlbertForTask], tokenizer: Tokenizer) -> None:
    network = build("token-classification")
    rectangle = padded(network)

    def off_by(error: float) -> Parity:
        def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            with torch.no_grad():
                (logits,) = rectangle(*map(torch.from_numpy, inputs.values()))
            logits[0, 0, 0] += error
            return {"logits": logits.numpy()}

        return compare(run, network, padded_batches(OUR_TEXTS, tokenizer, rectangle))

    require_equal(off_by(1e-6), what="model.onnx")
    for error in (0.1, float("nan"), float("inf")):
        with pytest.raises(LitebertError, match="LB-755"):
            require_equal(off_by(error), what="model.onnx")


def test_texts_come_from_a_file_and_the_extra_is_named(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("One.\n\nTwo.\tThree.\n", encoding="utf-8")
    assert read_texts(path) == (("One.", None), ("Two.", "Three."))
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(LitebertError, match="LB-753"):
        read_texts(path)
    code = "import sys; sys.modules['onnxruntime'] = None; import litebert.interop.export.onnx"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'litebert[onnx]'" in done.stderr and "onnxruntime" in done.stderr
