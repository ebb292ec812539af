"""Local attention and depth as studies: exact, timed, and judged by the masked-LM loss."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import litebert
from litebert.cli import cli
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining
from litebert.study.masked import masked_texts, measure_depths, measure_local_attention
from litebert.tokenizer import Tokenizer

TEXTS = ["In the morning Anna walked to the house. There Anna found a red ball under a tree."] * 6


@pytest.fixture(scope="module")
def model(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        num_hidden_layers=3,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    draws = torch.Generator().manual_seed(1)
    save_model(AlbertForPretraining(config, generator=draws), folder)
    tokenizer.save(folder, max_length=64)
    return folder


def test_local_attention_is_exact_and_a_wide_window_changes_nothing(model: Path) -> None:
    found = measure_local_attention(litebert.load(model), TEXTS, window=3, lengths=(64, 128), windows=(1, 64), rounds=1)
    assert 0 < found.training_difference < 1e-5  # 0: the formula was compared with itself
    assert found.packed_difference < 1e-5
    full, narrow, wide = (each.loss for each in found.losses)
    assert wide == pytest.approx(full, abs=1e-5)
    assert narrow != pytest.approx(full, abs=1e-5)
    assert [cost.length for cost in found.costs] == [64, 128]


def test_masks_are_the_same_at_every_call(model: Path) -> None:
    loaded = litebert.load(model)
    first, second = (masked_texts(loaded, TEXTS, longest=32) for _ in range(2))
    assert torch.equal(first.batch.ids, second.batch.ids)
    assert set(first.batch.lengths) == {32}
    with pytest.raises(LitebertError, match="LB-763"):
        masked_texts(loaded, ["a"], longest=64)


def test_every_depth_is_measured_and_the_model_keeps_its_own(model: Path) -> None:
    loaded = litebert.load(model)
    found = measure_depths(loaded, TEXTS, longest=32, rounds=1)
    assert [each.depth for each in found.depths] == [1, 2, 3]
    assert loaded.network.albert.depth == 3
    shallow = litebert.load(model, depth=2)
    texts = masked_texts(shallow, TEXTS, longest=32)
    assert isinstance(shallow.network, AlbertForPretraining)
    assert texts.measure(shallow.network)[0] == pytest.approx(found.depths[1].loss, abs=1e-5)


def test_a_folder_without_studies_is_refused(tmp_path: Path) -> None:
    words = ["page", str(tmp_path), "--html", str(tmp_path / "page.html")]
    result = CliRunner().invoke(cli, ["study", *words])
    assert isinstance(result.exception, LitebertError)
    assert result.exception.code == "LB-764"


def test_the_commands_print_what_they_write(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    words = [str(model), "--texts", str(tmp_path / "texts.txt"), "--rounds", "1", "--json"]
    words += ["--longest", "32", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, ["study", "depth", *words])
    assert result.exit_code == 0, result.output
    (shown,) = json.loads(result.stdout)
    assert json.loads((tmp_path / "out" / "depth-small.json").read_text()) == shown

    words += ["--lengths", "64,96", "--write-model", str(tmp_path / "long")]
    result = CliRunner().invoke(cli, ["study", "attention", *words])
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "out" / "attention-small.json").read_text()) == json.loads(result.stdout)
    page = tmp_path / "page.html"
    result = CliRunner().invoke(cli, ["study", "page", str(tmp_path / "out"), "--html", str(page)])
    assert result.exit_code == 0, result.output
    assert [title for title in ("Local attention", "Elastic depth") if title in page.read_text("utf-8")] == [
        "Local attention",
        "Elastic depth",
    ]
    config = litebert.load(tmp_path / "long").network.config
    assert (config.attention, config.max_position_embeddings) == ("local", 96)


def test_only_trained_positions_are_repeated(model: Path, tmp_path: Path) -> None:
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(TEXTS), encoding="utf-8")
    words = ["attention", str(model), "--texts", str(lines), "--lengths", "100", "--rounds", "1"]
    words += ["--longest", "32", "--write-model", str(tmp_path / "long"), "--trained-length", "32"]
    result = CliRunner().invoke(cli, ["study", *words])
    assert result.exit_code == 0, result.output
    short, long = (litebert.load(path).network.albert.embedding.position.weight for path in (model, tmp_path / "long"))
    assert torch.equal(long[32:64], short[:32])
    assert torch.equal(long[96:], short[:4])
