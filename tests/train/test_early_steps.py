"""What differs in the early steps depends on the step alone, so a stopped run resumes exactly."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from litebert.config import EarlyConfig, PretrainConfig, Resolved
from litebert.files import hash_file
from litebert.runs import read_metrics
from litebert.tasks.pretraining import depth_at
from litebert.train import loop
from litebert.train.pretrain import pretrain
from litebert.train.sources import Sources, loader_for

Configure = Callable[..., Resolved[PretrainConfig]]

OURS = [
    "optim.name=muon",
    "optim.beta2=0.98",
    "optim.average_decay=0.9",
    "early.mask_prob=0.3",
    "early.depth=1",
    "early.depth_share=0.4",
]


SELECTIVE = ["elastic.least_depth=1", "mining.pool=2"]


@pytest.mark.parametrize(("settings", "at_step"), [(OURS, 2), (OURS, 6), (OURS, 11), (SELECTIVE, 5)])
def test_a_stopped_run_with_everything_on_equals_an_uninterrupted_one(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch, settings: list[str], at_step: int
) -> None:
    pretrain(configure(*settings), tmp_path / "whole", is_quiet=True)
    with monkeypatch.context() as patched:
        _interrupt_at(patched, at_step)
        stopped = pretrain(configure(*settings), tmp_path / "stopped", is_quiet=True)
        assert stopped.step == at_step
    pretrain(configure(*settings), tmp_path / "stopped", is_quiet=True)

    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        files = [tmp_path / run / "checkpoints/step-000000012" / name for run in RUNS]
        assert hash_file(files[0]) == hash_file(files[1])
    models = [tmp_path / run / "model/model.safetensors" for run in RUNS]
    assert hash_file(models[0]) == hash_file(models[1])


RUNS = ("whole", "stopped")


def _interrupt_at(patched: pytest.MonkeyPatch, step: int) -> None:
    """Send this process a real SIGTERM when a step begins its update."""
    original = loop.training_step

    def signalling(*args: object, **kwargs: object) -> object:
        if kwargs["step"] == step - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args, **kwargs)

    patched.setattr(loop, "training_step", signalling)


def test_the_result_holds_the_average_and_the_checkpoint_the_weights(tmp_path: Path, configure: Configure) -> None:
    pretrain(configure(*OURS), tmp_path, is_quiet=True)
    last = tmp_path / "checkpoints/step-000000012"
    state, weights = (load_file(last / f"{n}.safetensors") for n in ("optimizer", "model"))
    result = load_file(tmp_path / "model/model.safetensors")

    name = "albert.encoder.embedding_hidden_mapping_in.weight"
    average = state["albert.embedding.projection.weight/average"]
    assert torch.equal(result[name], average)
    assert not torch.equal(weights[name], average)


def test_early_batches_have_more_masked_pieces(configure: Configure) -> None:
    config = configure("early.mask_prob=0.3", "early.mask_share=0.5").config
    plain = configure().config
    sources = Sources.open(config)
    early, steady = (
        loader_for(sources.corpus.path, config=each, sentence=sources.sentence) for each in (config, plain)
    )

    for step in range(12):
        batch, usual = early.batch(step), steady.batch(step)
        is_early = len(batch.masked_ids) > 1.5 * len(usual.masked_ids)
        assert is_early == (step < 6)
        assert np.array_equal(batch.offsets, usual.offsets)


def test_depth_grows_once() -> None:
    early = EarlyConfig(depth=2, depth_share=0.3)

    assert [depth_at(step, early, 10, 6) for step in range(10)] == [2] * 3 + [6] * 7
    assert depth_at(0, EarlyConfig(), 10, 6) == 6
    assert depth_at(0, early, 10, 1) == 1


def test_a_run_starts_as_its_settings_say(tmp_path: Path, configure: Configure) -> None:
    start = ["start.attention=local", "start.output_bias=unigram"]
    begun = ["train.steps=1", "optim.warmup_steps=0", "optim.learning_rate=1e-9"]
    pretrain(configure(*begun), tmp_path / "random", is_quiet=True)
    pretrain(configure(*begun, *start), tmp_path / "local", is_quiet=True)
    first, ours = (
        next(row for row in read_metrics(tmp_path / run) if row["kind"] == "eval") for run in ("random", "local")
    )

    assert ours["masked_lm_loss"] < first["masked_lm_loss"] - 0.3
