"""The state by name: complete, exact, and refused when it is another model's."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.errors import LitebertError
from litebert.optim import AdamW, Lamb, MomentOptimizer, load_state_tensors, parameter_groups, state_tensors

KINDS = pytest.mark.parametrize("kind", [AdamW, Lamb])


def small_model() -> torch.nn.Linear:
    torch.manual_seed(7)
    return torch.nn.Linear(3, 2)


def built(kind: type[MomentOptimizer], model: torch.nn.Linear) -> MomentOptimizer:
    return kind(parameter_groups(model.named_parameters(), weight_decay=0.01), lr=0.1)


def train(model: torch.nn.Linear, optimizer: MomentOptimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        model(torch.tensor([1.0, float(step), -1.0])).square().sum().backward()
        optimizer.step()


@KINDS
def test_training_continues_bit_equal_from_saved_state(kind: type[MomentOptimizer], tmp_path: Path) -> None:
    model, resumed = small_model(), small_model()
    optimizer = built(kind, model)
    train(model, optimizer, range(3))
    save_file(state_tensors(optimizer, model.named_parameters()), tmp_path / "state.safetensors")
    resumed.load_state_dict(model.state_dict())
    train(model, optimizer, range(3, 6))

    again = built(kind, resumed)
    saved = load_file(tmp_path / "state.safetensors")
    load_state_tensors(again, resumed.named_parameters(), saved)
    train(resumed, again, range(3, 6))

    assert torch.equal(resumed.weight, model.weight)
    assert torch.equal(resumed.bias, model.bias)
    for name, tensor in state_tensors(optimizer, model.named_parameters()).items():
        assert torch.equal(tensor, state_tensors(again, resumed.named_parameters())[name])


def test_names_are_those_of_the_parameters_even_before_the_first_step() -> None:
    model = small_model()

    tensors = state_tensors(built(Lamb, model), model.named_parameters())

    assert {name: tuple(each.shape) for name, each in tensors.items()} == {
        "weight/adam_m": (2, 3),
        "weight/adam_v": (2, 3),
        "bias/adam_m": (2,),
        "bias/adam_v": (2,),
    }
    assert not any(tensor.any() for tensor in tensors.values())


@pytest.mark.parametrize(
    ("dropped", "added", "told"),
    [
        ("bias/adam_v", None, "bias/adam_v"),
        (None, "other/adam_v", "other/adam_v"),
        ("weight/adam_m", "wieght/adam_m", "did you mean weight/adam_m"),
    ],
)
def test_missing_and_unknown_names_are_refused_and_change_nothing(
    dropped: str | None, added: str | None, told: str
) -> None:
    model = small_model()
    optimizer = built(Lamb, model)
    live = state_tensors(optimizer, model.named_parameters())
    tensors = {name: torch.ones_like(each) for name, each in live.items() if name != dropped}
    tensors |= {added: torch.ones(2)} if added else {}

    with pytest.raises(LitebertError, match=f"LB-423(?s:.*){told}"):
        load_state_tensors(optimizer, model.named_parameters(), tensors)

    assert not any(tensor.any() for tensor in live.values())


@pytest.mark.parametrize("wrong", [torch.ones(3), torch.ones(2, dtype=torch.float64)])
def test_another_shape_or_dtype_is_refused_and_changes_nothing(wrong: torch.Tensor) -> None:
    model = small_model()
    optimizer = built(Lamb, model)
    live = state_tensors(optimizer, model.named_parameters())
    tensors = {name: torch.ones_like(each) for name, each in live.items()}

    with pytest.raises(LitebertError, match=r"LB-424.*bias/adam_v"):
        load_state_tensors(optimizer, model.named_parameters(), {**tensors, "bias/adam_v": wrong})

    assert not any(tensor.any() for tensor in live.values())
