"""Schedules, update rules and state of the optimizers: the papers' formulas, and edge
cases.
"""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter

from litebert import optim
from litebert.config import AlbertConfig, OptimConfig
from litebert.errors import LitebertError
from litebert.nn import AlbertForPretraining
from litebert.optim import (
    AdamW,
    Lamb,
    MomentOptimizer,
    Muon,
    build_optimizer,
    parameter_groups,
    state_tensors,
)

# Learning rates


def schedule(
    name: str,
    warmup: float,
    total_steps: int,
    decay_share: float = 0.2,
    peak: float = 1.0,
) -> optim.Schedule:
    config = OptimConfig(
        schedule=name, learning_rate=peak, warmup_steps=warmup, decay_share=decay_share
    )
    return optim.build_schedule(config, total_steps=total_steps)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),
        (3_124, 0.0017594368),
        (3_125, 0.0017160000),
        (62_500, 0.00088),
        (125_000, 0.0),
    ],
)
def test_the_official_schedule_has_upstreams_values(step: int, rate: float) -> None:
    assert schedule("official", 3_125, 125_000, peak=0.00176)(step) == pytest.approx(
        rate, abs=1e-15
    )


@pytest.mark.parametrize("name", ["official", "linear", "wsd"])
@settings(max_examples=40, deadline=None)
@given(
    total_steps=st.integers(2, 400),
    warmup_share=st.floats(0, 0.99),
    decay_share=st.floats(0.01, 1.0),
)
def test_a_rate_lies_between_zero_and_the_peak_and_ends_at_zero(
    name: str, total_steps: int, warmup_share: float, decay_share: float
) -> None:
    warmup_steps = int(warmup_share * total_steps)
    rate = schedule(name, warmup_steps, total_steps, decay_share)
    rates = [rate(step) for step in range(total_steps + 1)]
    assert 0 < min(rates[1:-1], default=1) <= max(rates) <= 1
    assert rates[-1] == rate(2 * total_steps) == 0
    if name == "linear":  # it reaches the peak and has no jump
        steepest = 1 / min(max(1, warmup_steps), total_steps - warmup_steps)
        assert rates[warmup_steps] == 1
        assert (
            max(abs(after - before) for before, after in itertools.pairwise(rates))
            <= steepest + 1e-12
        )


def test_wsd_stays_at_the_peak_and_then_falls_as_one_minus_root() -> None:
    rate = schedule("wsd", 10, 100)
    long = schedule("wsd", 10, 1_000)
    assert {rate(step) for step in range(10, 81)} == {1.0}
    fall = [rate(80 + step) for step in range(21)]
    assert fall == pytest.approx([1 - math.sqrt(step / 20) for step in range(21)])
    assert [rate(step) for step in range(81)] == [long(step) for step in range(81)]
    late = [schedule("wsd", 6, 10, decay_share=1.0)(step) for step in (5, 6, 7)]
    # a long decay waits for the warmup
    assert late == pytest.approx([5 / 6, 1.0, 1 - math.sqrt(1 / 4)])


@pytest.mark.parametrize(
    ("asked", "total_steps", "peak_step"),
    [
        (0.025, 125_000, 3_125),
        (0.1, 40, 4),
        (0.999, 10, 9),
        (1, 10, 1),
        (0, 4, 0),
        (0.5, 1, 0),
        (9, 1, 0),
    ],
)
def test_a_warmup_below_one_is_a_share_and_leaves_a_full_step(
    asked: float, total_steps: int, peak_step: int
) -> None:
    rate = schedule("linear", asked, total_steps)
    assert rate(peak_step) == 1 and all(rate(step) < 1 for step in range(peak_step))
    assert (
        optim.build_schedule(
            OptimConfig(warmup_steps=3_125), total_steps=9, is_by_clock=True
        )(1)
        == 1.76e-3
    )


# Update rules

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
    ours, theirs = (Parameter(double([0.5, -0.3, 0.2])) for _ in range(2))
    optimizer = AdamW([ours], lr=0.01, betas=(0.9, 0.98), bias_correction=True)
    reference = torch.optim.AdamW(
        [theirs], 0.01, (0.9, 0.98), eps=1e-6, weight_decay=0.01
    )
    for gradient in ([0.1, -0.2, 0.05], [0.0, 0.3, -0.1], [0.2, 0.2, 0.2]):
        ours.grad = double(gradient)
        theirs.grad = double(gradient)
        optimizer.step()
        reference.step()
        # torch decays before the update and ours as part of it: they differ by lr^2
        # times the decay
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", [AdamW, Lamb])
@pytest.mark.parametrize("adapts", [True, False])
def test_a_step_in_portions_equals_a_step_parameter_by_parameter(
    kind: type[MomentOptimizer], adapts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = torch.Generator().manual_seed(1)
    start = [
        torch.randn(shape, generator=draws)
        for shape in ((3, 2), (), (4,), (1, 2, 3), (2, 2))
    ]
    settings = {"lr": 0.03, "betas": (0.8, 0.95), "weight_decay": 0.1}
    whole, parts, alone = (
        [Parameter(parameter.clone()) for parameter in start] for _ in range(3)
    )
    together = [
        kind([{"params": parameters, "is_adapted": adapts}], **settings)
        for parameters in (whole, parts)
    ]
    singles = [
        kind([{"params": [parameter], "is_adapted": adapts}], **settings)
        for parameter in alone
    ]
    for _ in range(3):
        for same_parameters in zip(whole, parts, alone, strict=True):
            gradient = torch.randn(same_parameters[0].shape, generator=draws)
            for parameter in same_parameters:
                parameter.grad = gradient.clone()
        for at_once, optimizers in (
            (1 << 24, [together[0], *singles]),
            (5, [together[1]]),
        ):
            monkeypatch.setattr("litebert.optim.moments._AT_ONCE", at_once)
            for optimizer in optimizers:
                optimizer.step()
    for one, other, third in zip(whole, parts, alone, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one, third)


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_a_cuda_step_equals_the_cpu_step(kind: type[MomentOptimizer]) -> None:
    on_cpu = torch.nn.Linear(64, 64)
    on_gpu = torch.nn.Linear(64, 64, device="cuda")
    on_gpu.load_state_dict(on_cpu.state_dict())
    for layer in (on_cpu, on_gpu):
        optimizer = kind(
            parameter_groups(layer.named_parameters(), weight_decay=0.01), lr=0.1
        )
        layer(
            torch.linspace(-1, 1, 64, device=layer.weight.device)
        ).square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(on_gpu.weight.cpu(), on_cpu.weight, rtol=1e-4, atol=1e-5)


def test_norms_and_biases_neither_decay_nor_adapt() -> None:
    moved = ["attention.0.query.weight", "normaliser.weight"]
    excluded = [
        "attention.0.query.bias",
        "attention.0.norm.weight",
        "norm.weight",
        "layernorm.weight",
    ]
    excluded += [
        "bert/embeddings/LayerNorm/gamma",
        "albert_layers.0.full_layer_layer_norm.weight",
    ]
    for name in (*moved, *excluded, "cls/predictions/output_bias"):
        (group,) = parameter_groups(
            [(name, Parameter(torch.ones(2)))], weight_decay=0.01
        )
        assert (group["weight_decay"], group["is_adapted"]) == (
            (0.01, True) if name in moved else (0.0, False)
        ), name


def with_gradient(values: list[float]) -> Parameter:
    parameter = Parameter(torch.zeros(len(values), dtype=torch.float64))
    parameter.grad = double(values)
    return parameter


ROWS = st.lists(
    st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


@settings(max_examples=50, deadline=None)
@given(rows=ROWS, max_norm=st.floats(0.01, 100))
@example(rows=[[1.0]], max_norm=49.0)  # 49 times 1/49 is not 1
def test_clipping_shrinks_gradients_by_one_common_factor(
    rows: list[list[float]], max_norm: float
) -> None:
    parameters = [with_gradient(row) for row in rows]
    norm = math.sqrt(math.fsum(value**2 for row in rows for value in row))
    factor = min(1.0, max_norm / norm) if norm else 1.0
    assert optim.clip_gradients(parameters, max_norm).item() == pytest.approx(
        norm, rel=1e-12
    )
    for parameter, row in zip(parameters, rows, strict=True):
        wanted = (
            row
            if norm < 0.99 * max_norm
            else pytest.approx([factor * x for x in row], rel=1e-12, abs=1e-300)
        )
        assert parameter.grad.tolist() == wanted  # within the limit: bit for bit


# Muon, and the state of an optimizer by name

MUON = OptimConfig(
    name="muon", learning_rate=0.003, muon_learning_rate=0.004, beta2=0.98
)


def network() -> AlbertForPretraining:
    config = AlbertConfig(
        vocab_size=40,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


def train(
    model: AlbertForPretraining, optimizer: torch.optim.Optimizer, steps: range
) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("adamw", {}),
        ("muon", {"average_decay": 0.99}),
        ("lamb", {"bias_correction": True, "average_decay": 0.99}),
    ],
)
def test_training_continues_bit_equal_from_saved_state(
    name: str, more: dict[str, float], tmp_path: Path
) -> None:
    config = MUON.model_copy(update={"name": name, **more})
    model = network()
    resumed = network()
    optimizer = build_optimizer(config, model.named_parameters())
    train(model, optimizer, range(3))
    save_file(state_tensors(optimizer), tmp_path / "state.safetensors")
    resumed.load_state_dict(model.state_dict())
    train(model, optimizer, range(3, 6))

    again = build_optimizer(config, resumed.named_parameters())
    optim.load_state_tensors(again, load_file(tmp_path / "state.safetensors"))
    train(resumed, again, range(3, 6))

    state = state_tensors(again)
    assert all(
        torch.equal(tensor, state[key])
        for key, tensor in state_tensors(optimizer).items()
    )
    weights = [parameter.clone() for parameter in model.parameters()]
    assert all(map(torch.equal, weights, resumed.parameters()))
    # the average replaces the weights only inside the block
    if "average_decay" in more:
        with optim.use_average(optimizer), optim.use_average(again):
            assert all(map(torch.equal, model.parameters(), resumed.parameters()))
            assert not all(map(torch.equal, model.parameters(), weights))
        assert all(map(torch.equal, model.parameters(), weights))


@pytest.mark.parametrize(
    ("dropped", "added", "message"),
    [
        ("bias/adam_v", {}, "bias/adam_v"),
        ("", {"other/adam_v": torch.ones(2)}, "other/adam_v"),
        (
            "weight/adam_m",
            {"wieght/adam_m": torch.ones(2)},
            "did you mean weight/adam_m",
        ),
        ("", {"bias/adam_v": torch.ones(3)}, r"bias/adam_v of \(3,\)"),
        (
            "",
            {"bias/adam_v": torch.ones(2, dtype=torch.float64)},
            "bias/adam_v of .*float64",
        ),
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(
    dropped: str, added: dict[str, Tensor], message: str
) -> None:
    optimizer = Lamb(
        parameter_groups(torch.nn.Linear(3, 2).named_parameters(), weight_decay=0.01),
        lr=0.1,
    )
    live = state_tensors(optimizer)
    assert list(live) == [
        "weight/adam_m",
        "weight/adam_v",
        "bias/adam_m",
        "bias/adam_v",
    ]
    tensors = {
        name: torch.ones_like(tensor)
        for name, tensor in live.items()
        if name != dropped
    }
    with pytest.raises(LitebertError, match=f"LB-423(?s:.*){message}"):
        optim.load_state_tensors(optimizer, tensors | added)
    assert not any(tensor.any() for tensor in live.values())


def test_muon_gets_the_hidden_matrices_and_adam_tables_classifiers_and_vectors() -> (
    None
):
    model = network()
    optimizer = build_optimizer(MUON, model.named_parameters())
    matrices = {
        name
        for group in optimizer.param_groups
        if group["is_matrix"]
        for name in group["param_names"]
    }
    attention = {
        f"albert.attention.0.{part}.weight"
        for part in ("query", "key", "value", "output")
    }
    widening = {
        f"albert.feed_forward.0.{part}.weight" for part in ("intermediate", "output")
    }
    others = {
        "albert.embedding.projection.weight",
        "albert.pooler.weight",
        "masked_lm.dense.weight",
    }
    assert matrices == attention | widening | others
    assert {g["rate_scale"] for g in optimizer.param_groups if g["is_matrix"]} == {
        0.004 / 0.003
    }


@pytest.mark.parametrize("shape", [(48, 16), (16, 48), (16, 16)])
def test_muon_moves_matrices_as_that_of_torch_does(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(shape, generator=generator)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizer = Muon([{"params": [ours], "is_matrix": True}], lr=0.02, weight_decay=0.1)
    reference = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.95)
    for _ in range(3):
        ours.grad = torch.randn(shape, generator=generator)
        theirs.grad = ours.grad.clone()
        optimizer.step()
        reference.step()
    moved = ours - start
    expected = theirs - start
    assert (moved - expected).norm() < 0.02 * expected.norm()
    assert not optim.orthogonalize(torch.zeros(shape)).any()
