"""Pretraining that starts from a model on disk instead of from random weights."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from litebert.config import PretrainConfig, Resolved
from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.runs import read_metrics
from litebert.train.pretrain import pretrain

Configure = Callable[..., Resolved[PretrainConfig]]


@pytest.fixture
def first(tmp_path: Path, configure: Configure) -> Path:
    """Return a finished run."""
    pretrain(configure(), tmp_path / "first", is_quiet=True)
    return tmp_path / "first"


def _first_evaluation(run: Path) -> dict[str, object]:
    row = read_metrics(run)[0]
    return {name: value for name, value in row.items() if name not in ("kind", "step")}


def test_training_goes_on_where_the_model_stood(tmp_path: Path, first: Path, configure: Configure) -> None:
    words = [f"start.model={first / 'model'}", "model.num_hidden_layers=2"]
    pretrain(configure(*words), tmp_path / "second", is_quiet=True)
    last = [row for row in read_metrics(first) if row["kind"] == "eval"][-1]
    begun = _first_evaluation(tmp_path / "second")
    assert begun["masked_lm_loss"] == pytest.approx(last["masked_lm_loss"], abs=1e-6)


def test_the_optimizer_goes_on_too_when_asked(tmp_path: Path, first: Path, configure: Configure) -> None:
    checkpoint = next(iter((first / "checkpoints").glob("step-*12")))
    start = tmp_path / "start"
    shutil.copytree(first / "model", start)
    shutil.copy(checkpoint / "optimizer.safetensors", start)
    words = [f"start.model={start}", "train.steps=1", "train.save_every=1"]
    pretrain(configure(*words, "start.optimizer=true"), tmp_path / "with", is_quiet=True)
    pretrain(configure(*words), tmp_path / "without", is_quiet=True)
    moments = [
        load_file(next((tmp_path / name / "checkpoints").glob("step-*")) / "optimizer.safetensors")
        for name in ("with", "without")
    ]
    name = "albert.pooler.weight/adam_m"
    before = load_file(start / "optimizer.safetensors")[name]
    assert torch.dist(moments[0][name], 0.9 * before) < torch.dist(moments[1][name], 0.9 * before)
    weights = [load_model(tmp_path / n / "model").network.state_dict() for n in ("with", "without")]
    assert any(not torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_what_does_not_go_with_the_model_is_refused(tmp_path: Path, first: Path, configure: Configure) -> None:
    start = f"start.model={first / 'model'}"
    for words, code in (([start, "model.hidden_size=64"], "LB-515"), ([start, "start.optimizer=true"], "LB-516")):
        with pytest.raises(LitebertError, match=code):
            pretrain(configure(*words), tmp_path / "refused", is_quiet=True)
    other = tmp_path / "other"
    shutil.copytree(first / "model", other)
    from litebert.tokenizer import train_tokenizer, write_tokenizer

    write_tokenizer(other, train_tokenizer(["red green blue, dark red"] * 9, vocab_size=25))
    with pytest.raises(LitebertError, match="LB-514"):
        pretrain(configure(f"start.model={other}"), tmp_path / "foreign", is_quiet=True)
