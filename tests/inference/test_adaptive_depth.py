"""Fewer steps, asked for as people ask: in Python and in the shell."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import litebert
from litebert.cli import cli
from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.fast import AlbertWithExits
from litebert.folder import save_model
from litebert.inference import Model
from litebert.nn import AlbertForTask
from litebert.tokenizer import Tokenizer

STEPS = 4
TEXTS = [
    "Anna walked.",
    "Bert found a red ball under a tree and took it home before noon.",
    "A",
    "Nobody at the river knew where it came from.",
    "Clara showed an old map to the neighbours.",
    "It was quiet.",
]


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> Tokenizer:
    """Give the vocabulary of the stories."""
    return Tokenizer.load(corpus / "tokenizer")


def _folder(folder: Path, tokenizer: Tokenizer, *, has_exits: bool) -> Path:
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=STEPS,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=48,
    )
    head = HeadConfig(kind="sequence-classification", labels=("no", "yes"))
    network = (AlbertWithExits if has_exits else AlbertForTask)(config, head)
    draws = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4, generator=draws)
    save_model(network, folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a random model with a head after every step."""
    return _folder(tmp_path_factory.mktemp("model"), tokenizer, has_exits=True)


def _values(model: Model, **options: int) -> list[list[float]]:
    return [list(each.values.values()) for each in model.classify(TEXTS, **options)]


def test_classify_with_patience_answers_each_text_as_alone(folder: Path) -> None:
    model = litebert.load(folder)
    full = _values(model)
    assert _values(model, patience=STEPS) == [pytest.approx(each, abs=1e-5) for each in full]
    hasty = _values(model, patience=1)
    assert hasty != full
    for text, expected in zip(TEXTS, hasty, strict=True):
        (alone,) = model.classify([text], patience=1)
        assert list(alone.values.values()) == pytest.approx(expected, abs=1e-5)
    assert _values(model) == [pytest.approx(each, abs=1e-6) for each in full]


def test_a_depth_is_chosen_when_loading_and_holds_for_every_verb(folder: Path) -> None:
    whole, shallow = litebert.load(folder), litebert.load(folder, depth=1)
    assert _values(litebert.load(folder, depth=STEPS)) == _values(whole)
    assert _values(shallow) != _values(whole)
    assert not np.allclose(shallow.embed(TEXTS), whole.embed(TEXTS), atol=1e-2)


def test_mistakes_are_named(folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-452"):
        litebert.load(folder, depth=STEPS + 1)
    with pytest.raises(LitebertError, match="LB-453"):
        litebert.load(folder).classify(TEXTS, patience=0)
    plain = litebert.load(_folder(tmp_path, tokenizer, has_exits=False))
    with pytest.raises(LitebertError, match=r"LB-454[\s\S]*train.exits=true"):
        plain.classify([], patience=1)


def test_the_shell_says_what_python_says(folder: Path) -> None:
    model, run = ["--model", str(folder), "--json"], CliRunner()
    patient = run.invoke(cli, ["classify", *TEXTS, *model, "--patience", "1"])
    found = [list(each["values"].values()) for each in json.loads(patient.stdout)]
    expected = _values(litebert.load(folder), patience=1)
    assert found == [pytest.approx(each, abs=1e-6) for each in expected]
    embedded = run.invoke(cli, ["embed", *TEXTS, *model, "--depth", "2"])
    expected_vectors = litebert.load(folder, depth=2).embed(TEXTS)
    assert np.allclose(json.loads(embedded.stdout), expected_vectors, atol=1e-6)
    refused = run.invoke(cli, ["classify", *TEXTS, *model, "--depth", "9"])
    assert str(refused.exception).startswith("LB-452")
