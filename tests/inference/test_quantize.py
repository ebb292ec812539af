"""Eight-bit copies: smaller, close, and refused wherever weights must be float."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from torch import Tensor

import litebert
from litebert.cli import cli
from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model, read_config, save_model, start_from
from litebert.folder.weights import INT8_FILE
from litebert.inference.quantize import quantize_with_texts
from litebert.nn import AlbertForPretraining
from litebert.tokenizer import Tokenizer

TEXTS = [f"Anna walked {number} times to the cold river." for number in range(40)]


@pytest.fixture(scope="module")
def folder(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a random model with the stories' vocabulary."""
    path = tmp_path_factory.mktemp("float")
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=32,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=64,
    )
    save_model(AlbertForPretraining(config, generator=torch.Generator().manual_seed(1)), path)
    tokenizer.save(path)
    return path


@pytest.fixture(scope="module")
def eight(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give its eight-bit copy."""
    path = tmp_path_factory.mktemp("int8") / "model"
    found = quantize_with_texts(folder, path, TEXTS)
    assert found.num_examples == 37
    assert found.error < 0.05
    assert found.bytes_after < 0.4 * found.bytes_before
    return path


def test_an_eight_bit_copy_answers_as_the_original_nearly(folder: Path, eight: Path) -> None:
    exact = litebert.load(folder).embed(TEXTS[:5])
    found = litebert.load(eight).embed(TEXTS[:5])
    assert np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)
    assert len(litebert.load(eight).fill("Anna walked to the [MASK].")) == 5


def test_the_command_makes_the_same_copy(folder: Path, eight: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = [str(folder), str(tmp_path / "out"), "--texts", str(tmp_path / "texts.txt")]
    result = CliRunner().invoke(cli, ["quantize", *words])
    assert result.exit_code == 0, result.output
    assert "bytes" in result.output
    ours, theirs = (load_file(path / INT8_FILE) for path in (tmp_path / "out", eight))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_copy_that_differs_much_is_warned_of(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = [str(folder), str(tmp_path / "first"), "--texts", str(tmp_path / "texts.txt")]
    assert "warning" not in CliRunner().invoke(cli, ["quantize", *words]).stderr
    monkeypatch.setattr("litebert.interop.reports.MUCH", 0.0)
    words[1] = str(tmp_path / "second")
    assert "measure it with --evaluate" in CliRunner().invoke(cli, ["quantize", *words]).stderr


def test_only_inference_takes_eight_bits(eight: Path) -> None:
    with pytest.raises(LitebertError, match="LB-663"):
        load_model(eight)
    with pytest.raises(LitebertError, match="LB-663"):
        start_from(AlbertForPretraining(read_config(eight)), eight)


@pytest.mark.parametrize(
    "words", ["import huggingface {} --output {}", "export google {} {}", "export onnx {} {}/model.onnx"]
)
def test_only_float_weights_are_converted(eight: Path, tmp_path: Path, words: str) -> None:
    result = CliRunner().invoke(cli, words.format(eight, tmp_path / "out").split())
    assert isinstance(result.exception, LitebertError)
    assert result.exception.code == "LB-663"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [transformers.AlbertModel, transformers.AlbertForPreTraining])
def test_transformers_refuses_the_folder_instead_of_drawing_random_weights(
    eight: Path, kind: type[transformers.AlbertPreTrainedModel]
) -> None:
    with pytest.raises(OSError, match="no file named"):
        kind.from_pretrained(eight)


def _damaged(tensors: dict[str, Tensor], damage: str) -> None:
    """Change tensors in place: take one away, or make one what it cannot be."""
    half = next(name for name in tensors if name.endswith("ffn.quantized"))
    ranges = tensors["albert.ranges"]
    changes: dict[str, dict[str, Tensor | None]] = {
        "no scale": {half.replace("quantized", "scale"): None},
        "no numbers": {half: None},
        "half a pooler": {"albert.pooler.scale": None},
        "no ranges": {"albert.ranges": None},
        "no means": {"albert.shifts": None},
        "no biases": {"albert.biases": None},
        "means of one block": {"albert.shifts": tensors["albert.shifts"][:, :1]},
        "ranges of fewer steps": {"albert.ranges": ranges[:2]},
        "one range a step": {"albert.ranges": ranges[:, 0]},
        "ranges back to front": {"albert.ranges": ranges.flip(-1)},
        "a range that is no number": {"albert.ranges": ranges * torch.nan},
        "a negative scale": {"albert.pooler.scale": -tensors["albert.pooler.scale"]},
        "wider numbers": {half: tensors[half].to(torch.int32)},
        "unsigned numbers": {half: tensors[half].view(torch.uint8)},
        "float numbers": {half: tensors[half].float()},
        "too few numbers": {half: tensors[half][1:]},
    }
    for name, tensor in changes[damage].items():
        del tensors[name]
        if tensor is not None:
            tensors[name] = tensor.contiguous()


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("no scale", "LB-665"),
        ("no numbers", "LB-665"),
        ("half a pooler", "LB-665"),
        ("no ranges", "LB-660"),
        ("no means", "LB-660"),
        ("no biases", "LB-660"),
        ("means of one block", "LB-606"),
        ("ranges of fewer steps", "LB-606"),
        ("one range a step", "LB-606"),
        ("ranges back to front", "LB-666"),
        ("a range that is no number", "LB-607"),
        ("a negative scale", "LB-666"),
        ("wider numbers", "LB-606"),
        ("unsigned numbers", "LB-606"),
        ("float numbers", "LB-606"),
        ("too few numbers", "LB-606"),
    ],
)
def test_a_damaged_copy_gives_one_error(eight: Path, tmp_path: Path, damage: str, code: str) -> None:
    tensors = load_file(eight / INT8_FILE)
    _damaged(tensors, damage)
    save_file(tensors, tmp_path / INT8_FILE, metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((eight / "config.json").read_text())
    with pytest.raises(DamagedError, match=code):
        load_model(tmp_path, for_inference=True)


def test_bad_requests_say_what_is_missing(folder: Path, eight: Path, tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-618"):
        quantize_with_texts(folder, tmp_path / "a", TEXTS[:3])
    with pytest.raises(LitebertError, match="LB-619"):
        quantize_with_texts(folder, eight, TEXTS)
    with pytest.raises(LitebertError, match="LB-617"):
        quantize_with_texts(eight, tmp_path / "b", TEXTS)
    assert not (tmp_path / "a").exists()
    result = CliRunner().invoke(cli, ["quantize", str(folder), str(tmp_path / "c")])
    assert isinstance(result.exception, LitebertError)
