"""A training step on its own: the scale of the loss, skipped steps, sums without
float64.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from litebert import device
from litebert.config import AlbertConfig, OptimConfig, TrainConfig
from litebert.device import Device, choose_device
from litebert.errors import LitebertError
from litebert.nn import AlbertForPretraining, Batch
from litebert.optim import build_optimizer
from litebert.tasks.heads import PretrainingWork
from litebert.tasks.pretraining import Pretraining
from litebert.train import checkpoint, step
from litebert.train.checkpoint import RunProgress
from litebert.train.step import StepResult, training_step

LENGTHS = (19, 7, 7)


def _network(dtype: torch.dtype) -> AlbertForPretraining:
    config = AlbertConfig(
        vocab_size=50,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return AlbertForPretraining(config, dtype=dtype).train()


def _work() -> PretrainingWork:
    ids = torch.arange(sum(LENGTHS)) % 50
    masked = torch.tensor([1, 8, 12, 20])
    return PretrainingWork(
        batch=Batch.from_lists([sequence.tolist() for sequence in ids.split(LENGTHS)]),
        masked_positions=masked,
        masked_ids=ids[masked],
        sentence_labels=torch.tensor([0, 1, 0]),
        step_masked=4,
        step_labeled=3,
    )


def _step(
    dtype: torch.dtype, loss_scale: float
) -> tuple[StepResult, dict[str, Tensor]]:
    """Take a step; return its result, and the weights after it."""
    torch.manual_seed(1)
    network = _network(dtype)
    network.albert.embedding.word.weight.data *= 3
    rule = build_optimizer(OptimConfig(name="adamw"), network.named_parameters())
    task = Pretraining(network, held_out=(), train=TrainConfig())
    options = {"step": 0, "learning_rate": 0.01, "clip_norm": 1.0, "seed": 1}
    result = training_step(task, [_work()], rule, **options, loss_scale=loss_scale)
    return result, network.state_dict()


def test_the_scale_of_the_loss_changes_no_bit_in_float32_and_an_overflow_in_fp16_changes_nothing() -> (  # noqa: E501
    None
):
    (exact, one), (scaled, other) = (
        _step(torch.float32, 1.0),
        _step(torch.float32, 2.0**15),
    )
    assert exact == scaled
    assert all(map(torch.equal, one.values(), other.values()))
    half, _ = _step(torch.float16, 2.0**10)
    assert half.loss == pytest.approx(exact.loss, rel=1e-3)
    assert half.gradient_norm == pytest.approx(exact.gradient_norm, rel=1e-2)
    overflown, after = _step(torch.float16, 2.0**40)
    assert not overflown.is_finite
    torch.manual_seed(1)
    untouched = _network(torch.float16)
    assert torch.equal(after["albert.pooler.weight"], untouched.albert.pooler.weight)


def test_the_scale_halves_at_an_overflow_and_doubles_after_many_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step, "STEPS_PER_SCALE", 2)
    good = StepResult((), 0, 1.0, 1.0, is_finite=True)
    bad = StepResult((), 0, 1.0, float("inf"), is_finite=False)
    config: Any = SimpleNamespace(
        optim=OptimConfig(), train=TrainConfig(precision="fp16", max_skipped_steps=0)
    )
    progress = RunProgress(loss_scale=8.0)
    scales = []
    for result in (good, bad, good, good, good, bad, bad):
        step.count(progress, result, config, MagicMock())
        scales.append(progress.loss_scale)
    assert scales == [8, 4, 4, 8, 8, 4, 2]
    # only at a scale of 1 does an overflow count as skipped
    with pytest.raises(LitebertError, match="LB-503"):
        step.count(progress, bad, config, MagicMock())


class _NoFloat64(TorchDispatchMode):
    """Refuse float64, which Apple's GPUs lack."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            assert not isinstance(leaf, Tensor) or leaf.dtype != torch.float64, function
        return result


def test_a_step_and_a_check_of_its_state_on_an_apple_gpu_use_no_float64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(AssertionError), _NoFloat64():
        _step(torch.float32, 1.0)
    monkeypatch.setitem(device.KINDS, "cpu", partial(Device, has_float64=False))
    device.device_at.cache_clear()
    weights = {"good": torch.full((3,), 3e38), "bad": torch.tensor([1.0, float("nan")])}
    with _NoFloat64():
        assert _step(torch.float32, 1.0)[0].is_finite
        assert checkpoint.first_not_finite(weights) == "bad"
        assert checkpoint.first_not_finite({"good": weights["good"]}) is None
    device.device_at.cache_clear()


def test_several_processes_do_not_share_an_apple_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LitebertError, match=r"LB-507[\s\S]*cannot share"):
        choose_device("mps")
