"""Eight-bit copies: smaller, close, and refused wherever weights must be float."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

import litebert
from litebert.cli.quantize import quantize
from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model, save_model
from litebert.nn import AlbertForPretraining
from litebert.predict.quantize import quantize_with_texts
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
    result = CliRunner().invoke(quantize, words)
    assert result.exit_code == 0, result.output
    assert "bytes" in result.output
    ours, theirs = (load_file(path / "model.safetensors") for path in (tmp_path / "out", eight))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_only_inference_takes_eight_bits(eight: Path) -> None:
    with pytest.raises(LitebertError, match="LB-663"):
        load_model(eight)


def test_another_program_is_told_that_it_cannot_read_the_folder(eight: Path) -> None:
    table = json.loads((eight / "config.json").read_text())
    assert table["quantization_config"] == {"quant_method": "litebert-int8"}


@pytest.mark.parametrize("damage", ["scale", "ranges", "dtype", "nan"])
def test_a_damaged_copy_gives_one_error(eight: Path, tmp_path: Path, damage: str) -> None:
    tensors = load_file(eight / "model.safetensors")
    scale = next(name for name in tensors if name.endswith("ffn.scale"))
    if damage == "scale":
        del tensors[scale]
    elif damage == "ranges":
        tensors["albert.ranges"] = torch.zeros(2, 4, 2)
    elif damage == "dtype":
        name = scale.replace("scale", "quantized")
        tensors[name] = tensors[name].to(torch.int32)
    else:
        tensors["albert.ranges"][0, 0, 0] = torch.nan
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((eight / "config.json").read_text())
    with pytest.raises(DamagedError):
        load_model(tmp_path, for_inference=True)


def test_bad_requests_say_what_is_missing(folder: Path, eight: Path, tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-618"):
        quantize_with_texts(folder, tmp_path / "a", TEXTS[:3])
    with pytest.raises(LitebertError, match="LB-619"):
        quantize_with_texts(folder, eight, TEXTS)
    with pytest.raises(LitebertError, match="LB-663"):
        quantize_with_texts(eight, tmp_path / "b", TEXTS)
    assert not (tmp_path / "a").exists()
    result = CliRunner().invoke(quantize, [str(folder), str(tmp_path / "c")])
    assert isinstance(result.exception, LitebertError)
