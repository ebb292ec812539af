"""The vectorised steps against a loop over parameters, and at their edges."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import Parameter

from litebert.optim import AdamW, Lamb, MomentOptimizer, parameter_groups, trust_ratios

SHAPES = st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=3).map(tuple), min_size=1, max_size=5)
KINDS = pytest.mark.parametrize("kind", [AdamW, Lamb])


def naive_step(parameter: Tensor, gradient: Tensor, moments: dict[str, Tensor], rule: dict[str, float]) -> Tensor:
    """Return one parameter after one step, by the formula and nothing else."""
    moments["m"] = rule["beta1"] * moments["m"] + (1 - rule["beta1"]) * gradient
    moments["v"] = rule["beta2"] * moments["v"] + (1 - rule["beta2"]) * gradient**2
    update = moments["m"] / (moments["v"].sqrt() + rule["eps"]) + rule["decay"] * parameter
    size, stride = parameter.norm().item(), update.norm().item()
    ratio = size / stride if rule["adapts"] and size > 0 and stride > 0 else 1.0
    return parameter - ratio * rule["lr"] * update


@KINDS
@settings(max_examples=30, deadline=None)
@given(shapes=SHAPES, seed=st.integers(0, 2**31), adapts=st.booleans(), at_once=st.sampled_from([5, 1 << 24]))
def test_a_vectorised_step_equals_the_loop_over_parameters(
    kind: type[MomentOptimizer], shapes: list[tuple[int, ...]], seed: int, adapts: bool, at_once: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    rule = {"lr": 0.03, "beta1": 0.8, "beta2": 0.95, "eps": 1e-5, "decay": 0.1}
    parameters = [Parameter(random_like(shape, generator)) for shape in shapes]
    expected = [parameter.detach().clone() for parameter in parameters]
    moments = [{"m": torch.zeros_like(each), "v": torch.zeros_like(each)} for each in expected]
    optimizer = kind(
        [{"params": parameters, "is_adapted": adapts}], rule["lr"], betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1
    )
    rule["adapts"] = adapts and kind is Lamb

    for _ in range(3):
        gradients = [random_like(shape, generator) for shape in shapes]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("litebert.optim.optimizers._AT_ONCE", at_once)
            optimizer.step()
        expected = [naive_step(*each, rule) for each in zip(expected, gradients, moments, strict=True)]

    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), wanted, rtol=1e-12, atol=1e-13)


def random_like(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@KINDS
def test_float32_steps_stay_near_float64_steps(kind: type[MomentOptimizer]) -> None:
    start = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    single, double = Parameter(start.float()), Parameter(start.clone())
    optimizers = [kind([single], lr=0.01), kind([double], lr=0.01)]

    for step in range(20):
        double.grad = torch.sin(start * (step + 1))
        single.grad = double.grad.float()
        for optimizer in optimizers:
            optimizer.step()

    assert single.dtype == torch.float32
    torch.testing.assert_close(single.detach().double(), double.detach(), rtol=1e-5, atol=1e-6)


def test_a_parameter_of_zeros_moves_with_ratio_one() -> None:
    zeros = Parameter(torch.zeros(3))
    zeros.grad = torch.tensor([1.0, -1.0, 1.0])

    Lamb([zeros], lr=0.1).step()

    direction = 0.1 / (0.001**0.5 + 1e-6)
    torch.testing.assert_close(zeros.detach(), -0.1 * direction * torch.tensor([1.0, -1.0, 1.0]))


def test_a_zero_gradient_without_decay_moves_nothing() -> None:
    weight = Parameter(torch.tensor([3.0, 4.0]))
    weight.grad = torch.zeros(2)

    Lamb([weight], lr=0.1, weight_decay=0.0).step()

    assert weight.tolist() == [3.0, 4.0]


def test_trust_ratios_are_one_where_a_norm_is_zero() -> None:
    full, empty = torch.tensor([3.0, 4.0]), torch.zeros(2)

    ratios = trust_ratios([full, full, empty, empty], [2 * full, empty, full, empty])

    assert ratios.tolist() == [0.5, 1.0, 1.0, 1.0]


@KINDS
def test_a_parameter_without_gradient_keeps_its_value_and_moments(kind: type[MomentOptimizer]) -> None:
    idle, busy = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    busy.grad = torch.ones(2)
    optimizer = kind([idle, busy])

    optimizer.step()

    assert idle.tolist() == [1.0, 1.0]
    assert all(not moment.any() for moment in optimizer.moments(idle))
    assert busy[0] < 1


@KINDS
def test_a_group_without_any_gradient_is_passed_over(kind: type[MomentOptimizer]) -> None:
    frozen, busy = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    busy.grad = torch.ones(2)

    kind([{"params": [frozen]}, {"params": [busy]}]).step()

    assert frozen.tolist() == [1.0, 1.0]
    assert busy[0] < 1


@KINDS
def test_a_sparse_gradient_is_refused_by_name(kind: type[MomentOptimizer]) -> None:
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()

    with pytest.raises(ValueError, match="sparse gradient"):
        kind(table.parameters()).step()


@KINDS
def test_a_step_reads_nothing_on_the_host(kind: type[MomentOptimizer]) -> None:
    # A meta tensor has no values: whatever waits for one raises.
    layer = torch.nn.Linear(3, 3, device="meta")
    layer.weight.grad, layer.bias.grad = (torch.empty_like(layer.weight), torch.empty(3, device="meta"))
    groups = parameter_groups(layer.named_parameters(), weight_decay=0.01)

    optimizer = kind(groups, lr=torch.empty((), device="meta"))
    optimizer.step()

    assert optimizer.moments(layer.weight)[0].is_meta


@KINDS
def test_a_rate_held_in_a_tensor_gives_the_same_step(kind: type[MomentOptimizer]) -> None:
    by_number, by_tensor = (Parameter(torch.tensor([0.5, -0.3])), Parameter(torch.tensor([0.5, -0.3])))
    rate = torch.zeros(())
    optimizers = [kind([by_number], lr=0.25), kind([by_tensor], lr=rate)]
    rate.fill_(0.25)

    for parameter, optimizer in zip([by_number, by_tensor], optimizers, strict=True):
        parameter.grad = torch.tensor([0.1, 0.2])
        optimizer.step()

    assert torch.equal(by_number, by_tensor)


@KINDS
def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned(kind: type[MomentOptimizer]) -> None:
    weight = Parameter(torch.tensor([2.0]))
    optimizer = kind([weight])

    def closure() -> float:
        loss = weight.square().sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 4.0
    assert weight.item() < 2


@KINDS
@pytest.mark.parametrize("setting", [{"lr": -1.0}, {"betas": (0.9, 1.0)}, {"eps": 0.0}, {"weight_decay": -0.1}])
def test_a_setting_out_of_range_is_refused(kind: type[MomentOptimizer], setting: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        kind([Parameter(torch.ones(1))], **setting)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@KINDS
def test_a_cuda_step_equals_the_cpu_step(kind: type[MomentOptimizer]) -> None:
    on_cpu = torch.nn.Linear(64, 64)
    on_gpu = torch.nn.Linear(64, 64, device="cuda")
    on_gpu.load_state_dict(on_cpu.state_dict())

    for layer in (on_cpu, on_gpu):
        groups = parameter_groups(layer.named_parameters(), weight_decay=0.01)
        optimizer = kind(groups, lr=0.1)
        layer(torch.linspace(-1, 1, 64, device=layer.weight.device)).square().sum().backward()
        optimizer.step()

    torch.testing.assert_close(on_gpu.weight.cpu(), on_cpu.weight, rtol=1e-4, atol=1e-5)
