"""The state of an optimizer by name: exact, and refused when it is another model's; Muon moves as torch's own."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.config import AlbertConfig, OptimConfig
from litebert.errors import LitebertError
from litebert.nn import AlbertForPretraining
from litebert.optim import (
    Lamb,
    Muon,
    averaged,
    build_optimizer,
    load_state_tensors,
    orthogonalised,
    parameter_groups,
    state_tensors,
)

CONFIG = OptimConfig(name="muon", learning_rate=0.003, muon_learning_rate=0.004, beta2=0.98)


def network() -> AlbertForPretraining:
    config = AlbertConfig(vocab_size=40, embedding_size=8, hidden_size=16, num_attention_heads=2, intermediate_size=32)
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


def train(model: AlbertForPretraining, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize(
    ("name", "more"),
    [("adamw", {}), ("muon", {"average_decay": 0.99}), ("lamb", {"bias_correction": True, "average_decay": 0.99})],
)
def test_training_continues_bit_equal_from_saved_state(name: str, more: dict[str, float], tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"name": name, **more})
    model, resumed = network(), network()
    optimizer = build_optimizer(config, model.named_parameters())
    train(model, optimizer, range(3))
    save_file(state_tensors(optimizer, model.named_parameters()), tmp_path / "state.safetensors")
    resumed.load_state_dict(model.state_dict())
    train(model, optimizer, range(3, 6))

    again = build_optimizer(config, resumed.named_parameters())
    load_state_tensors(again, resumed.named_parameters(), load_file(tmp_path / "state.safetensors"))
    train(resumed, again, range(3, 6))

    found = state_tensors(again, resumed.named_parameters())
    for key, tensor in state_tensors(optimizer, model.named_parameters()).items():
        assert torch.equal(tensor, found[key])
    weights = [parameter.clone() for parameter in model.parameters()]
    for ours, theirs in zip(weights, resumed.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    if "average_decay" in more:  # the average takes the place of the weights, and gives it back
        with averaged(optimizer), averaged(again):
            for ours, theirs in zip(model.parameters(), resumed.parameters(), strict=True):
                assert torch.equal(ours, theirs)
            assert not all(map(torch.equal, model.parameters(), weights))
        assert all(map(torch.equal, model.parameters(), weights))


@pytest.mark.parametrize(
    ("dropped", "added", "told"),
    [
        ("bias/adam_v", {}, "LB-423(?s:.*)bias/adam_v"),
        ("", {"other/adam_v": torch.ones(2)}, "LB-423(?s:.*)other/adam_v"),
        ("weight/adam_m", {"wieght/adam_m": torch.ones(2)}, "LB-423(?s:.*)did you mean weight/adam_m"),
        ("", {"bias/adam_v": torch.ones(3)}, "LB-424.*bias/adam_v"),
        ("", {"bias/adam_v": torch.ones(2, dtype=torch.float64)}, "LB-424.*bias/adam_v"),
    ],
)
def test_the_state_of_another_model_is_refused_and_changes_nothing(
    dropped: str, added: dict[str, torch.Tensor], told: str
) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = Lamb(parameter_groups(model.named_parameters(), weight_decay=0.01), lr=0.1)
    live = state_tensors(optimizer, model.named_parameters())
    assert {name: each.numel() for name, each in live.items()} == {
        f"{name}/adam_{moment}": size for name, size in (("weight", 6), ("bias", 2)) for moment in "mv"
    }
    tensors = {name: torch.ones_like(each) for name, each in live.items() if name != dropped}
    with pytest.raises(LitebertError, match=told):
        load_state_tensors(optimizer, model.named_parameters(), tensors | added)
    assert not any(tensor.any() for tensor in live.values())


@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (64, 16)])
def test_every_singular_value_ends_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalised(matrix))
    assert 0.6 < values.min() <= values.max() < 1.3
    assert not orthogonalised(torch.zeros(shape)).any()


def test_hidden_matrices_are_muons_and_tables_classifiers_and_vectors_are_adams() -> None:
    model = network()
    optimizer = build_optimizer(CONFIG, model.named_parameters())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices = {names[id(p)] for g in optimizer.param_groups if g["is_matrix"] for p in g["params"]}
    attention = {f"albert.attention.0.{part}.weight" for part in ("query", "key", "value", "output")}
    widening = {f"albert.feed_forward.0.{part}.weight" for part in ("intermediate", "output")}
    others = {"albert.embedding.projection.weight", "albert.pooler.weight", "masked_lm.dense.weight"}
    assert matrices == attention | widening | others
    assert {g["rate_scale"] for g in optimizer.param_groups if g["is_matrix"]} == {0.004 / 0.003}


def test_it_moves_matrices_as_torchs_muon_does() -> None:
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(48, 16, generator=generator)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizer = Muon([{"params": [ours], "is_matrix": True}], lr=0.02, weight_decay=0.1)
    reference = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.95)
    for _ in range(3):
        ours.grad = torch.randn(48, 16, generator=generator)
        theirs.grad = ours.grad.clone()
        optimizer.step()
        reference.step()
    moved, expected = ours - start, theirs - start
    assert (moved - expected).norm() < 0.02 * expected.norm()
