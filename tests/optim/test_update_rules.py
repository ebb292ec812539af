"""The update rules against hand-computed vectors of the official rules, in float64."""

import pytest
import torch

from litebert.optim import AdamW, Lamb, MomentOptimizer, parameter_groups

START = [0.5, -0.3, 0.2]
GRADIENTS = [[0.1, -0.2, 0.05], [0.0, 0.3, -0.1], [0.2, 0.2, 0.2]]

# lr .01, weight decay .01, three steps, no clipping; computed by hand from optimization.py L120-207
# and lamb_optimizer.py L66-122.
ADAMW_KERNEL = [
    [0.4683372202, -0.2683522226, 0.1683772108],
    [0.4398246528, -0.2788507799, 0.1839138785],
    [0.4000389444, -0.3024554204, 0.1631244134],
]
LAMB_KERNEL = [
    [0.4964389127, -0.2964406000, 0.1964434104],
    [0.4913362137, -0.2983187672, 0.1992231253],
    [0.4865636864, -0.3011496812, 0.1967294471],
]
LAMB_RATIOS = [0.1124691924, 0.1789455184, 0.1199402921]
EITHER_BIAS = [
    [0.4683872202, -0.2683822226, 0.1683972108],
    [0.4399214865, -0.2789076151, 0.1839507162],
    [0.4001797606, -0.3025401407, 0.1631796425],
]


def double(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def trajectory(kind: type[MomentOptimizer], name: str) -> tuple[list[torch.Tensor], list[float]]:
    """Return the parameter after each step, and by how much each step outdid the plain update."""
    parameter = torch.nn.Parameter(double(START))
    optimizer = kind(parameter_groups([(name, parameter)], weight_decay=0.01), lr=0.01)
    decay = optimizer.param_groups[0]["weight_decay"]
    after, ratios = [], []
    for gradient in GRADIENTS:
        before = parameter.detach().clone()
        parameter.grad = double(gradient)
        optimizer.step()
        first, second = optimizer.moments(parameter)
        plain = 0.01 * (first / (second.sqrt() + 1e-6) + decay * before)
        after.append(parameter.detach().clone())
        ratios.append(((before - after[-1]).norm() / plain.norm()).item())
    return after, ratios


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (AdamW, "dense.weight", ADAMW_KERNEL),
        (Lamb, "dense.weight", LAMB_KERNEL),
        (AdamW, "dense.bias", EITHER_BIAS),
        (Lamb, "dense.bias", EITHER_BIAS),
        (AdamW, "block.norm.weight", EITHER_BIAS),
        (Lamb, "block.norm.weight", EITHER_BIAS),
    ],
)
def test_three_steps_give_the_golden_parameters(
    kind: type[MomentOptimizer], name: str, expected: list[list[float]]
) -> None:
    after, _ = trajectory(kind, name)

    for step, row in zip(after, expected, strict=True):
        torch.testing.assert_close(step, double(row), rtol=0, atol=1e-9)


def test_three_lamb_steps_have_the_golden_ratios() -> None:
    _, ratios = trajectory(Lamb, "dense.weight")

    assert ratios == pytest.approx(LAMB_RATIOS, abs=1e-9)


def test_adamw_reaches_the_toy_target_as_upstream_does() -> None:
    # Upstream's optimization_test.test_adam: mean square error, lr .2, no decay, 100 steps.
    weight = torch.nn.Parameter(torch.tensor([0.1, -0.2, -0.1]))
    target = torch.tensor([0.4, 0.2, -0.5])
    optimizer = AdamW([weight], lr=0.2, weight_decay=0.0)

    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(weight, target).backward()
        optimizer.step()

    assert weight.tolist() == pytest.approx([0.40165, 0.19782, -0.49782], abs=1e-4)


def test_bias_corrected_adamw_equals_that_of_torch() -> None:
    ours, theirs = (torch.nn.Parameter(double(START)) for _ in range(2))
    optimizer = AdamW([ours], lr=0.01, betas=(0.9, 0.98), bias_correction=True)
    reference = torch.optim.AdamW([theirs], 0.01, (0.9, 0.98), eps=1e-6, weight_decay=0.01)
    for gradient in GRADIENTS:
        ours.grad, theirs.grad = double(gradient), double(gradient)
        optimizer.step()
        reference.step()
        # torch decays before the update and ours beside it: they differ by lr^2 times the decay
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)
