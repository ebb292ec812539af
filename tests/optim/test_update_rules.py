"""The update rules: the formula for any shapes, and the edges; `contract/test_exact_optimizers.py` has more."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import Parameter

from litebert.optim import AdamW, Lamb, MomentOptimizer, clip_gradients, parameter_groups

KINDS = pytest.mark.parametrize("kind", [AdamW, Lamb])
START = [0.5, -0.3, 0.2]
GRADIENTS = [[0.1, -0.2, 0.05], [0.0, 0.3, -0.1], [0.2, 0.2, 0.2]]


def double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_bias_corrected_adamw_equals_that_of_torch() -> None:
    ours, theirs = (Parameter(double(START)) for _ in range(2))
    optimizer = AdamW([ours], lr=0.01, betas=(0.9, 0.98), bias_correction=True)
    reference = torch.optim.AdamW([theirs], 0.01, (0.9, 0.98), eps=1e-6, weight_decay=0.01)
    for gradient in GRADIENTS:
        ours.grad, theirs.grad = double(gradient), double(gradient)
        optimizer.step()
        reference.step()
        # torch decays before the update and ours beside it: they differ by lr^2 times the decay
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)


SHAPES = st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=3).map(tuple), min_size=1, max_size=5)


@KINDS
@settings(max_examples=30, deadline=None)
@given(shapes=SHAPES, seed=st.integers(0, 2**31), adapts=st.booleans(), at_once=st.sampled_from([5, 1 << 24]))
def test_a_vectorised_step_equals_the_loop_over_parameters(
    kind: type[MomentOptimizer], shapes: list[tuple[int, ...]], seed: int, adapts: bool, at_once: int
) -> None:
    generator = torch.Generator().manual_seed(seed)

    def drawn() -> list[Tensor]:
        return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]

    expected = drawn()
    parameters = [Parameter(each.clone()) for each in expected]
    first, second = ([torch.zeros_like(each) for each in expected] for _ in range(2))
    group = {"params": parameters, "is_adapted": adapts}
    optimizer = kind([group], 0.03, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)
    for _ in range(3):
        for i, gradient in enumerate(drawn()):
            parameters[i].grad = gradient.clone()
            first[i] = 0.8 * first[i] + (1 - 0.8) * gradient
            second[i] = 0.95 * second[i] + (1 - 0.95) * gradient**2
            update = first[i] / (second[i].sqrt() + 1e-5) + 0.1 * expected[i]
            size, stride = expected[i].norm().item(), update.norm().item()
            ratio = size / stride if adapts and kind is Lamb and size > 0 and stride > 0 else 1.0
            expected[i] = expected[i] - ratio * 0.03 * update
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("litebert.optim._AT_ONCE", at_once)
            optimizer.step()
    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), wanted, rtol=1e-12, atol=1e-13)


@KINDS
def test_parameters_and_groups_without_a_gradient_keep_their_values(kind: type[MomentOptimizer]) -> None:
    idle, frozen, busy = (Parameter(torch.ones(2)) for _ in range(3))
    busy.grad = torch.ones(2)
    optimizer = kind([{"params": [frozen]}, {"params": [idle, busy]}])
    optimizer.step()
    assert idle.tolist() == frozen.tolist() == [1.0, 1.0]
    assert all(not moment.any() for moment in optimizer.state[idle].values())
    assert busy[0] < 1


@KINDS
def test_a_sparse_gradient_and_a_setting_out_of_range_are_refused(kind: type[MomentOptimizer]) -> None:
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="sparse gradient"):
        kind(table.parameters()).step()
    for setting in ({"lr": -1.0}, {"betas": (0.9, 1.0)}, {"eps": 0.0}, {"weight_decay": -0.1}):
        with pytest.raises(ValueError, match=next(iter(setting))):
            kind([Parameter(torch.ones(1))], **setting)


@KINDS
def test_clipping_and_a_step_read_nothing_on_the_host(kind: type[MomentOptimizer]) -> None:
    # A meta tensor has no values: whatever waits for one raises.
    layer = torch.nn.Linear(3, 3, device="meta")
    layer.weight.grad, layer.bias.grad = (torch.empty_like(layer.weight), torch.empty(3, device="meta"))
    assert clip_gradients(layer.parameters(), 1.0).is_meta
    optimizer = kind(parameter_groups(layer.named_parameters(), weight_decay=0.01), lr=torch.empty((), device="meta"))
    optimizer.step()
    assert optimizer.state[layer.weight]["adam_m"].is_meta


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@KINDS
def test_a_cuda_step_equals_the_cpu_step(kind: type[MomentOptimizer]) -> None:
    on_cpu, on_gpu = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64, device="cuda")
    on_gpu.load_state_dict(on_cpu.state_dict())
    for layer in (on_cpu, on_gpu):
        optimizer = kind(parameter_groups(layer.named_parameters(), weight_decay=0.01), lr=0.1)
        layer(torch.linspace(-1, 1, 64, device=layer.weight.device)).square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(on_gpu.weight.cpu(), on_cpu.weight, rtol=1e-4, atol=1e-5)


def test_norms_and_biases_neither_decay_nor_adapt() -> None:
    moved = ["attention.0.query.weight", "normaliser.weight"]
    excluded = ["attention.0.query.bias", "attention.0.norm.weight", "norm.weight", "layernorm.weight"]
    excluded += ["bert/embeddings/LayerNorm/gamma", "albert_layers.0.full_layer_layer_norm.weight"]
    for name in (*moved, *excluded, "cls/predictions/output_bias"):
        (group,) = parameter_groups([(name, Parameter(torch.ones(2)))], weight_decay=0.01)
        assert (group["weight_decay"], group["is_adapted"]) == ((0.01, True) if name in moved else (0.0, False)), name


NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)


def with_gradient(values: list[float]) -> Parameter:
    parameter = Parameter(torch.zeros(len(values), dtype=torch.float64))
    parameter.grad = double(values)
    return parameter


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.lists(NUMBERS, min_size=1, max_size=4), min_size=1, max_size=4), max_norm=st.floats(0.01, 100))
def test_clipping_shrinks_gradients_by_one_common_factor(rows: list[list[float]], max_norm: float) -> None:
    parameters = [with_gradient(row) for row in rows]
    norm = math.sqrt(math.fsum(value**2 for row in rows for value in row))
    factor = min(1.0, max_norm / norm) if norm else 1.0
    assert clip_gradients(parameters, max_norm).item() == pytest.approx(norm, rel=1e-12)
    for parameter, row in zip(parameters, rows, strict=True):
        wanted = row if norm < 0.99 * max_norm else pytest.approx([factor * x for x in row], rel=1e-12, abs=1e-300)
        assert parameter.grad.tolist() == wanted  # within the limit: bit for bit


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_gradient_shows_in_the_norm_and_nothing_is_touched(bad: float) -> None:
    parameters = [with_gradient([3.0, 4.0]), with_gradient([bad, 1.0])]
    before = [parameter.grad.clone() for parameter in parameters]
    assert not clip_gradients(parameters, 1.0).isfinite()
    for parameter, kept in zip(parameters, before, strict=True):
        torch.testing.assert_close(parameter.grad, kept, rtol=0, atol=0, equal_nan=True)
