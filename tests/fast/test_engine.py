"""The engine, in training and packed, gives what the plain network gives; so do copies of it."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from litebert.fast import (
    accelerate,
    calibrate,
    checkpoint_gradients,
    int8,
    is_packed,
    pack,
    steps,
    to_int8,
    use_backend,
)
from litebert.fast import attention as kernels
from litebert.fast.steps import cast
from litebert.nn import Albert, AlbertForPretraining, Batch

Make = Callable[..., AlbertForPretraining]
MASKED = torch.tensor([5, 70, 61, 4, 132])
READ = torch.tensor([50, 0, 131, 3, 4, 60, 59, 44])
SHAPES = [
    {},
    {"sharing": "none"},
    {"sharing": "ffn"},
    {"inner_group_num": 2},
    {"attention": "local", "attention_window": 4},
    *({"hidden_act": act} for act in ("gelu", "relu", "tanh", "linear")),
]


def _difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


def _pack_without_private_kernels(network: AlbertForPretraining) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays", lambda *_: False)
        steps._kernel_in_fp32.cache_clear()
        pack(network.albert)
    steps._kernel_in_fp32.cache_clear()


@pytest.mark.parametrize("changes", SHAPES)
@torch.no_grad()
def test_every_state_is_that_of_the_plain_network(make: Make, batch: Batch, changes: dict[str, object]) -> None:
    network = make(**changes).albert
    expected, read = list(network.states(batch)), network(batch, READ)
    for prepare in (accelerate, lambda each: pack(each.albert), _pack_without_private_kernels):
        engined = make(**changes)
        prepare(engined)
        states = list(engined.albert.states(batch))
        for ours, theirs in zip(states, expected, strict=True):
            assert _difference(ours, theirs) < 2e-6
        assert torch.equal(expected[-1][READ], read)
        assert _difference(engined.albert(batch, READ), read) < 2e-6
        alone = Batch.from_flat(batch.ids[3:43], batch.segments[3:43], (40,))
        assert _difference(engined.albert(alone), expected[-1][3:43]) < 2e-6


@torch.no_grad()
def test_bf16_is_within_a_hundredth_of_float32(make: Make, batch: Batch) -> None:
    half = make(torch.bfloat16)
    for prepare in (accelerate, lambda each: pack(each.albert)):
        prepare(half)
        assert {p.dtype for p in half.parameters()} == {torch.float32}
        assert half.albert(batch).dtype == torch.bfloat16
        assert _difference(half.albert(batch), make().albert(batch)) < 2e-2


def _computed(network: AlbertForPretraining, batch: Batch) -> list[Tensor]:
    """Return the logits, then the gradients of all parameters."""
    found = network(batch, MASKED)
    (found.masked_lm.float().logsumexp(-1).sum() + found.sentence_order.square().sum()).backward()
    return [*found.values(), *(p.grad for p in network.parameters() if p.grad is not None)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("changes", [{}, {"attention": "local", "attention_window": 3}, {"sharing": "none"}])
def test_logits_and_gradients_are_those_of_the_plain_network(
    make: Make, batch: Batch, dtype: torch.dtype, tolerance: float, changes: dict[str, object]
) -> None:
    engined = make(dtype, **changes).train()
    accelerate(engined)
    found = [_computed(network, batch) for network in (engined, make(**changes).train())]
    ours, theirs = (torch.cat([x.detach().float().flatten() for x in each]) for each in found)
    assert _difference(ours, theirs) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_checkpointing_changes_no_bit(make: Make, batch: Batch, dtype: torch.dtype) -> None:
    found = []
    for is_checkpointed in (False, True):
        network = make(dtype, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1).train()
        accelerate(network)
        if is_checkpointed:
            checkpoint_gradients(network.albert)
        torch.manual_seed(1)
        found.append(_computed(network, batch))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_in_bf16_small_gradients_survive_beside_large_ones(make: Make, batch: Batch) -> None:
    weight = torch.ones(4, requires_grad=True)
    use = cast(weight, torch.bfloat16)
    torch.stack([256 * use(), *(use() for _ in range(5))]).sum().backward()
    assert weight.grad.tolist() == [261.0] * 4
    network = make(torch.bfloat16).train()
    accelerate(network)
    _computed(network, batch)
    summed = network.albert.feed_forward[0].output.weight.grad
    assert summed.dtype == torch.float32
    assert not torch.equal(summed, summed.bfloat16().float())  # bits that bf16 does not have


CHANGES: dict[str, Callable[[Albert, Make], object]] = {
    "train": lambda network, _: network.train(),
    "load": lambda network, make: network.load_state_dict(make(initializer_range=0.1).albert.state_dict()),
    "move": lambda network, _: network.to(torch.float64).to(torch.float32),
    "write": lambda network, _: network.feed_forward[0].output.bias[0].add_(3.0),  # of all, a norm would take it away
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_what_was_packed_is_forgotten_when_the_weights_may_change(make: Make, batch: Batch, change: str) -> None:
    network = make().albert
    pack(network)
    before = network(batch)
    CHANGES[change](network, make)
    assert not is_packed(network)
    assert (_difference(network(batch), before) < 1e-6) == (change in ("train", "move"))


def test_gradients_are_there_although_weights_are_packed(make: Make, batch: Batch) -> None:
    network = make().albert
    pack(network)
    network(batch).sum().backward()
    assert network.attention[0].query.weight.grad is not None
    assert is_packed(network)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))])
@pytest.mark.parametrize("kind", ["plain", "training", "packed", "bf16", "local", "int8", "onnxruntime"])
def test_a_copy_computes_the_same_in_the_same_way(
    make: Make, batch: Batch, kind: str, copier: Callable[[AlbertForPretraining], AlbertForPretraining]
) -> None:
    dtype, attention = torch.bfloat16 if kind == "bf16" else torch.float32, "local" if kind == "local" else "full"
    network = make(dtype, attention=attention)
    if kind != "plain":
        accelerate(network)
    if kind == "int8":
        to_int8(network, calibrate(network.albert, [batch]))
    if kind not in ("plain", "training"):
        pack(network.albert)
    if kind == "onnxruntime":
        use_backend(network.albert, kind)
    copied = copier(network)
    text = Batch.from_lists([[2, 7, 9, 3]])
    with torch.no_grad():
        for each in (batch, text):
            for ours, theirs in zip(network.albert.states(each), copied.albert.states(each), strict=True):
                assert torch.equal(ours, theirs)
    assert is_packed(copied.albert) == is_packed(network.albert) == (kind not in ("plain", "training"))
    if kind == "training":
        assert all(map(torch.equal, *(_computed(each.train(), batch) for each in (network, copied))))
    elif kind != "plain":
        assert copied.albert.engine._packed is not None  # packed anew, in its own memory
        assert copied.albert.engine._packed[0] != network.albert.engine._packed[0]


@pytest.mark.parametrize(
    ("kernel", "dtype", "tolerance"),
    [(steps.mkl, torch.float32, 1e-6), (steps.onednn, torch.float32, 1e-6), (steps.onednn, torch.bfloat16, 1e-2)],
)
@pytest.mark.parametrize("num_rows", [1, 17, 128, 1_000])
def test_private_kernels_multiply_rightly_any_number_of_rows(
    kernel: steps.Kernel, dtype: torch.dtype, tolerance: float, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where torch has renamed them, everything works, slower; this test says so."""
    draws = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(70, 90, generator=draws), torch.randn(70, generator=draws)
    x = torch.randn(num_rows, 90, generator=draws)
    y = torch.randn(num_rows, 70, generator=draws)
    product = kernel(weight.to(dtype), bias.to(dtype), "linear")
    expected = torch.nn.functional.linear(x, weight, bias)
    assert _difference(product(x.to(dtype), None), expected) < tolerance
    for in_pieces in (False, True):
        monkeypatch.setattr(steps, "_likes_pieces", lambda *_, answer=in_pieces: answer)
        assert _difference(product(x.to(dtype), y.to(dtype)), expected + y) < tolerance


def test_probes_leave_the_random_numbers_of_others_alone() -> None:
    before = torch.get_rng_state()
    for probe in (steps.pays, steps._likes_pieces, kernels._likes_fused, int8.kernels_work):
        probe.cache_clear()
    steps.pays(steps.onednn, torch.bfloat16)
    steps._likes_pieces(2, torch.bfloat16)
    kernels._likes_fused(32)
    int8.kernels_work()
    assert torch.equal(torch.get_rng_state(), before)
