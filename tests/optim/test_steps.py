"""Steps of LAMB, AdamW and Muon: the papers' formulas, which parameters decay, adapt or
are orthogonalized, and clipped gradients.
"""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter

from litebert import optim
from litebert.optim import AdamW, Lamb, MomentOptimizer, Muon, parameter_groups

# ---- LAMB and AdamW ------------------------------------------------------------------

RATE = 0.02
DECAY = 0.01
BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-6
SHAPES = {
    "dense.weight": (5, 3),
    "dense.bias": (5,),
    "norm.weight": (3,),
    "word.weight": (7, 2),
}
DECAYED = ("dense.weight", "word.weight")
Arrays = dict[str, NDArray[np.float64]]


def draw_arrays(seed: int) -> Arrays:
    generator = np.random.Generator(np.random.PCG64(seed))
    return {name: generator.normal(size=shape) for name, shape in SHAPES.items()}


def updated(num_steps: int, *, is_lamb: bool) -> Arrays:
    """Compute steps of LAMB (You et al. 2020, algorithm 2, without bias correction, as
    upstream) or of AdamW, with the gradients draw_arrays(1), draw_arrays(2), ...
    """
    values = draw_arrays(0)
    first = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    second = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for seed in range(1, num_steps + 1):
        for name, gradient in draw_arrays(seed).items():
            first[name] = BETA1 * first[name] + (1 - BETA1) * gradient
            second[name] = BETA2 * second[name] + (1 - BETA2) * gradient**2
            update = first[name] / (np.sqrt(second[name]) + EPSILON)
            trust_ratio = 1.0
            if name in DECAYED:
                update += DECAY * values[name]
                if is_lamb:
                    norm = np.linalg.norm(values[name])
                    trust_ratio = float(norm / np.linalg.norm(update))
            values[name] -= RATE * trust_ratio * update
    return values


@pytest.mark.parametrize("kind", [Lamb, AdamW])
@pytest.mark.parametrize("num_steps", [1, 2, 7])
def test_an_update_is_that_of_the_formula(
    kind: type[Lamb] | type[AdamW], num_steps: int
) -> None:
    parameters = {
        name: Parameter(torch.tensor(value)) for name, value in draw_arrays(0).items()
    }
    groups = parameter_groups(list(parameters.items()), weight_decay=DECAY)
    optimizer = kind(groups, lr=RATE, betas=(BETA1, BETA2), eps=EPSILON)
    for seed in range(1, num_steps + 1):
        for name, gradient in draw_arrays(seed).items():
            parameters[name].grad = torch.tensor(gradient)
        optimizer.step()

    for name, expected in updated(num_steps, is_lamb=kind is Lamb).items():
        value = parameters[name].detach().numpy()
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


def test_a_matrix_of_zeros_has_the_trust_ratio_1() -> None:
    zeros = Parameter(torch.zeros(3, 2))
    optimizer = Lamb([zeros], lr=RATE, weight_decay=0.0)
    zeros.grad = torch.ones(3, 2)
    optimizer.step()
    update = (1 - BETA1) / (math.sqrt(1 - BETA2) + EPSILON)
    torch.testing.assert_close(zeros.detach(), torch.full((3, 2), -RATE * update))


def test_a_matrix_with_a_gradient_of_zeros_stays_as_it_is() -> None:
    ones = Parameter(torch.ones(3, 2))
    optimizer = Lamb([ones], lr=RATE, weight_decay=0.0)
    ones.grad = torch.zeros(3, 2)
    optimizer.step()
    assert torch.equal(ones.detach(), torch.ones(3, 2))


def double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_bias_corrected_adamw_equals_that_of_torch() -> None:
    start = [0.5, -0.3, 0.2]
    weights = Parameter(double(start))
    expected = Parameter(double(start))
    optimizer = AdamW([weights], lr=0.01, betas=(0.9, 0.98), bias_correction=True)
    reference = torch.optim.AdamW(
        [expected], lr=0.01, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01
    )
    for gradient in ([0.1, -0.2, 0.05], [0.0, 0.3, -0.1], [0.2, 0.2, 0.2]):
        weights.grad = double(gradient)
        expected.grad = double(gradient)
        optimizer.step()
        reference.step()
        # torch decays before the update and ours as part of it: they differ by lr^2
        # times the decay
        torch.testing.assert_close(weights, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_a_parameter_without_a_gradient_is_unchanged(
    kind: type[MomentOptimizer],
) -> None:
    idle = Parameter(torch.ones(2))
    busy = Parameter(torch.ones(2))
    busy.grad = torch.ones(2)
    kind([idle, busy]).step()
    assert idle.tolist() == [1.0, 1.0]
    assert busy[0] < 1


# ---- steps of many parameters at once ------------------------------------------------


class Steps:
    """Three steps of an optimizer from drawn parameters, with drawn gradients; it may
    adapt the rate of each parameter.
    """

    def __init__(self, kind: type[MomentOptimizer], *, is_adapted: bool) -> None:
        self._kind = kind
        self._is_adapted = is_adapted
        generator = torch.Generator().manual_seed(1)
        self._starts = list[Tensor]()
        self._gradients = list[list[Tensor]]()
        for shape in ((3, 2), (), (4,), (1, 2, 3), (2, 2)):
            draws = [torch.randn(shape, generator=generator) for _ in range(4)]
            self._starts.append(draws[0])
            self._gradients.append(draws[1:])

    def together(self) -> list[Tensor]:
        """Return what one optimizer makes of all parameters."""
        return self._weights(range(len(self._starts)))

    def one_by_one(self) -> list[Tensor]:
        """Return what an optimizer of its own makes of each parameter."""
        weights = list[Tensor]()
        for number in range(len(self._starts)):
            weights.extend(self._weights(range(number, number + 1)))
        return weights

    def _weights(self, numbers: range) -> list[Tensor]:
        parameters = [Parameter(self._starts[number].clone()) for number in numbers]
        group = {"params": parameters, "is_adapted": self._is_adapted}
        optimizer = self._kind([group], lr=0.03, betas=(0.8, 0.95), weight_decay=0.1)
        for step in range(3):
            for number, parameter in zip(numbers, parameters, strict=True):
                parameter.grad = self._gradients[number][step].clone()
            optimizer.step()
        return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize("kind", [AdamW, Lamb])
@pytest.mark.parametrize("is_adapted", [True, False])
def test_a_step_of_all_parameters_equals_steps_of_each(
    kind: type[MomentOptimizer], is_adapted: bool
) -> None:
    steps = Steps(kind, is_adapted=is_adapted)
    torch.testing.assert_close(steps.together(), steps.one_by_one())


@pytest.mark.parametrize("kind", [AdamW, Lamb])
@pytest.mark.parametrize("is_adapted", [True, False])
def test_a_step_in_portions_equals_a_step_of_all_parameters(
    kind: type[MomentOptimizer], is_adapted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(kind, is_adapted=is_adapted)
    at_once = steps.together()
    monkeypatch.setattr("litebert.optim.moments._AT_ONCE", 5)
    torch.testing.assert_close(steps.together(), at_once)


def after_one_step(layer: torch.nn.Linear, kind: type[MomentOptimizer]) -> Tensor:
    """Return the weights of a layer after a step."""
    groups = parameter_groups(layer.named_parameters(), weight_decay=0.01)
    optimizer = kind(groups, lr=0.1)
    inputs = torch.linspace(-1, 1, 64, device=layer.weight.device)
    layer(inputs).square().sum().backward()
    optimizer.step()
    return layer.weight.detach().cpu()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_a_cuda_step_equals_the_cpu_step(kind: type[MomentOptimizer]) -> None:
    on_cpu = torch.nn.Linear(64, 64)
    on_gpu = torch.nn.Linear(64, 64, device="cuda")
    on_gpu.load_state_dict(on_cpu.state_dict())
    weights = after_one_step(on_gpu, kind)
    expected = after_one_step(on_cpu, kind)
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)


# ---- what decays and adapts ----------------------------------------------------------


@pytest.mark.parametrize("name", ["attention.0.query.weight", "normaliser.weight"])
def test_matrices_decay_and_adapt(name: str) -> None:
    (group,) = parameter_groups([(name, Parameter(torch.ones(2)))], weight_decay=0.01)
    assert group["weight_decay"] == 0.01
    assert group["is_adapted"]


@pytest.mark.parametrize(
    "name",
    [
        "attention.0.query.bias",
        "attention.0.norm.weight",
        "norm.weight",
        "layernorm.weight",
        "bert/embeddings/LayerNorm/gamma",
        "albert_layers.0.full_layer_layer_norm.weight",
        "cls/predictions/output_bias",
    ],
)
def test_norms_and_biases_neither_decay_nor_adapt(name: str) -> None:
    (group,) = parameter_groups([(name, Parameter(torch.ones(2)))], weight_decay=0.01)
    assert group["weight_decay"] == 0.0
    assert not group["is_adapted"]


# ---- clipped gradients ---------------------------------------------------------------


def with_gradient(values: list[float]) -> Parameter:
    parameter = Parameter(torch.zeros(len(values), dtype=torch.float64))
    parameter.grad = double(values)
    return parameter


def norm_of(rows: list[list[float]]) -> float:
    return math.sqrt(math.fsum(value**2 for row in rows for value in row))


NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)
ROWS = st.lists(st.lists(NUMBERS, min_size=1, max_size=4), min_size=1, max_size=4)


@settings(max_examples=50, deadline=None)
@given(rows=ROWS, max_norm=st.floats(0.01, 100))
@example(rows=[[1.0]], max_norm=49.0)  # 49 times 1/49 is not 1
def test_clipping_shrinks_gradients_by_one_common_factor(
    rows: list[list[float]], max_norm: float
) -> None:
    parameters = [with_gradient(row) for row in rows]
    norm = norm_of(rows)
    clipped_from = optim.clip_gradients(parameters, max_norm).item()
    assert clipped_from == pytest.approx(norm, rel=1e-12)

    factor = min(1.0, max_norm / norm) if norm else 1.0
    for parameter, row in zip(parameters, rows, strict=True):
        expected = [factor * value for value in row]
        gradient = parameter.grad.tolist()
        assert gradient == pytest.approx(expected, rel=1e-12, abs=1e-300)
        if norm < 0.99 * max_norm:
            assert gradient == row  # within the limit: bit for bit


# ---- Muon ----------------------------------------------------------------------------

MATRIX_SHAPES = [(48, 16), (16, 48), (16, 16)]


@pytest.mark.parametrize("shape", MATRIX_SHAPES)
def test_muon_moves_matrices_as_that_of_torch_does(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(shape, generator=generator)
    weights = Parameter(start.clone())
    expected = Parameter(start.clone())
    group = {"params": [weights], "is_matrix": True}
    optimizer = Muon([group], lr=0.02, weight_decay=0.1)
    reference = torch.optim.Muon([expected], lr=0.02, weight_decay=0.1, momentum=0.95)
    for _ in range(3):
        gradient = torch.randn(shape, generator=generator)
        weights.grad = gradient.clone()
        expected.grad = gradient.clone()
        optimizer.step()
        reference.step()

    distance = (weights - expected).norm()
    assert distance < 0.02 * (expected - start).norm()


@pytest.mark.parametrize("shape", MATRIX_SHAPES)
def test_a_matrix_of_zeros_stays_zero_when_it_is_orthogonalized(
    shape: tuple[int, int],
) -> None:
    assert not optim.orthogonalize(torch.zeros(shape)).any()


# ---- what a step costs besides its numbers -------------------------------------------

A_RUN = """
import sys, torch
from litebert.device import choose_device
from litebert.optim import AdamW

weight = torch.nn.Parameter(torch.ones(3))
with choose_device("cpu").computing(torch.float32, is_deterministic=True):
    optimizer = AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
print(weight.grad is None, "torch._dynamo" in sys.modules)
"""


def test_training_does_not_import_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", A_RUN], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", "False"]
