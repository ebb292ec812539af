"""Eight-bit copies: smaller, close, and refused wherever weights must be float."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import litebert
from litebert.errors import DamagedError, LitebertError
from litebert.folder import INT8_FILE, read_config, read_folder, start_from
from litebert.inference.quantizing import quantize
from litebert.nn import AlbertForPretraining
from litebert.tasks.teacher import Teacher
from litebert.tokenizer import Tokenizer
from tests.contract import shell
from tests.networks import save_random

TEXTS = [f"Anna walked {number} times to the cold river." for number in range(40)]


@pytest.fixture(scope="module")
def folder(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {
        "embedding_size": 32,
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "intermediate_size": 512,
    }
    return save_random(
        tmp_path_factory.mktemp("float"),
        Tokenizer.load(corpus / "tokenizer"),
        std=0.02,
        **shape,
    )


@pytest.fixture(scope="module")
def eight(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("int8") / "model"
    quantized = quantize(folder, path, texts=TEXTS)
    assert quantized.num_examples == 37 and quantized.error < 0.05
    assert quantized.bytes_after < 0.4 * quantized.bytes_before
    return path


def test_the_command_makes_the_same_copy_and_warns_of_one_that_differs_much(
    folder: Path, eight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = ["quantize", folder, tmp_path / "out", "--texts", tmp_path / "texts.txt"]
    made = shell.litebert(*words).ok
    assert "bytes" in made.stdout and "warning" not in made.stderr
    ours, theirs = (load_file(path / INT8_FILE) for path in (tmp_path / "out", eight))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    monkeypatch.setattr("litebert.interop.MUCH", 0.0)
    words[2] = tmp_path / "second"
    assert "evaluate this copy" in shell.litebert(*words).stderr


def test_unsupported_uses_of_eight_bit_copies_are_refused(
    folder: Path, eight: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    calls = [
        ("LB-663", lambda: read_folder(eight)),  # for training
        ("LB-663", lambda: start_from(AlbertForPretraining(read_config(eight)), eight)),
        (
            "LB-664",
            lambda: Teacher.load(eight, Tokenizer.load(folder), dtype=torch.float32),
        ),
        ("LB-872", lambda: litebert.load(eight).explain("similar", *TEXTS[:2])),
        ("LB-617", lambda: quantize(eight, output, texts=TEXTS)),
        ("LB-618", lambda: quantize(folder, output, texts=TEXTS[:3])),
        ("LB-619", lambda: quantize(folder, folder, texts=TEXTS)),
    ]
    for code, call in calls:
        with pytest.raises(LitebertError, match=code):
            call()
        assert not output.exists()
    for code, words in (
        ("LB-663", ("import", "huggingface", eight, "--output", output)),
        ("LB-663", ("export", "onnx", eight, output / "m.onnx")),
        ("LB-536", ("quantize", folder, output)),
    ):
        shell.assert_error(shell.litebert(*words), 1, code)
        assert not output.exists()
    # transformers would draw random weights
    with pytest.raises(OSError, match="no file named"):
        transformers.AlbertModel.from_pretrained(eight)


HALF = "ffn.quantized"  # how the name of one matrix of numbers ends
DAMAGES: dict[str, tuple[str, str, Callable[[Tensor], Tensor] | None]] = {
    **{
        f"no {ending}": ("LB-660", ending, None)
        for ending in ("ffn.scale", HALF, "albert.ranges")
    },
    "means of one block": ("LB-606", "albert.shifts", lambda means: means[:, :1]),
    "ranges of fewer steps": ("LB-606", "albert.ranges", lambda ranges: ranges[:2]),
    "ranges back to front": ("LB-666", "albert.ranges", lambda ranges: ranges.flip(-1)),
    "a range that is no number": (
        "LB-607",
        "albert.ranges",
        lambda ranges: ranges * torch.nan,
    ),
    "a negative scale": ("LB-666", "albert.pooler.scale", lambda scale: -scale),
    "wider numbers": ("LB-606", HALF, lambda numbers: numbers.to(torch.int32)),
    "float numbers": ("LB-606", HALF, lambda numbers: numbers.float()),
    "too few numbers": ("LB-606", HALF, lambda numbers: numbers[1:]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_gives_one_error(
    eight: Path, tmp_path: Path, damage: str
) -> None:
    (code, ending, change), tensors = DAMAGES[damage], load_file(eight / INT8_FILE)
    name = next(name for name in tensors if name.endswith(ending))
    whole = tensors.pop(name)
    if change:
        tensors[name] = change(whole).contiguous()
    save_file(tensors, tmp_path / INT8_FILE, metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((eight / "config.json").read_text())
    with pytest.raises(DamagedError, match=code):
        read_folder(tmp_path, for_inference=True)
