"""An optimizer that is built for a network: which parameters Muon gets, and its state by
name, from which training goes on.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from litebert import optim
from litebert.config import AlbertConfig, OptimConfig
from litebert.errors import LitebertError
from litebert.nn import AlbertForPretraining
from litebert.optim import Lamb, build_optimizer, parameter_groups, state_tensors

MUON = OptimConfig(
    name="muon", learning_rate=0.003, muon_learning_rate=0.004, beta2=0.98
)


def new_network() -> AlbertForPretraining:
    config = AlbertConfig(
        vocab_size=40,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


# ---- what Muon gets ------------------------------------------------------------------


def test_muon_gets_the_hidden_matrices_and_adam_tables_classifiers_and_vectors() -> (
    None
):
    optimizer = build_optimizer(MUON, new_network().named_parameters())
    names = set[str]()
    for group in optimizer.param_groups:
        if group["is_matrix"]:
            assert group["rate_scale"] == 0.004 / 0.003
            names.update(group["param_names"])
    assert names == {
        "albert.attention.0.query.weight",
        "albert.attention.0.key.weight",
        "albert.attention.0.value.weight",
        "albert.attention.0.output.weight",
        "albert.feed_forward.0.intermediate.weight",
        "albert.feed_forward.0.output.weight",
        "albert.embedding.projection.weight",
        "albert.pooler.weight",
        "masked_lm.dense.weight",
    }


# ---- going on from a saved state -----------------------------------------------------


def train(
    network: AlbertForPretraining, optimizer: torch.optim.Optimizer, steps: range
) -> None:
    """Take steps with gradients that are drawn by the number of the step."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in network.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def weights_of(network: AlbertForPretraining) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def are_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"name": "adamw"}, id="adamw"),
        pytest.param({"name": "muon", "average_decay": 0.99}, id="muon"),
        pytest.param(
            {"name": "lamb", "bias_correction": True, "average_decay": 0.99}, id="lamb"
        ),
    ],
)
def test_training_continues_bit_equal_from_saved_state(
    changes: dict[str, object], tmp_path: Path
) -> None:
    config = MUON.model_copy(update=changes)
    whole = new_network()
    of_whole = build_optimizer(config, whole.named_parameters())
    train(whole, of_whole, range(3))
    save_file(state_tensors(of_whole), tmp_path / "state.safetensors")
    resumed = new_network()
    resumed.load_state_dict(whole.state_dict())
    train(whole, of_whole, range(3, 6))

    of_resumed = build_optimizer(config, resumed.named_parameters())
    optim.load_state_tensors(of_resumed, load_file(tmp_path / "state.safetensors"))
    train(resumed, of_resumed, range(3, 6))

    assert are_equal(weights_of(resumed), weights_of(whole))
    state = state_tensors(of_resumed)
    for name, tensor in state_tensors(of_whole).items():
        assert torch.equal(state[name], tensor), name
    if config.average_decay:
        with optim.use_average(of_whole), optim.use_average(of_resumed):
            assert are_equal(weights_of(resumed), weights_of(whole))


@pytest.mark.parametrize("name", ["muon", "lamb"])
def test_the_average_replaces_the_weights_only_inside_its_block(name: str) -> None:
    network = new_network()
    config = MUON.model_copy(update={"name": name, "average_decay": 0.99})
    optimizer = build_optimizer(config, network.named_parameters())
    train(network, optimizer, range(6))
    weights = weights_of(network)
    with optim.use_average(optimizer):
        assert not are_equal(weights_of(network), weights)
    assert are_equal(weights_of(network), weights)


# ---- the state of another optimizer --------------------------------------------------

NAMES = ["weight/adam_m", "weight/adam_v", "bias/adam_m", "bias/adam_v"]
DOUBLE = torch.ones(2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("dropped", "added", "message"),
    [
        pytest.param("bias/adam_v", {}, "bias/adam_v", id="missing"),
        pytest.param("", {"other/adam_v": torch.ones(2)}, "other/adam_v", id="unknown"),
        pytest.param(
            "weight/adam_m",
            {"wieght/adam_m": torch.ones(2)},
            "did you mean weight/adam_m",
            id="misspelt",
        ),
        pytest.param(
            "",
            {"bias/adam_v": torch.ones(3)},
            r"bias/adam_v of \(3,\)",
            id="another shape",
        ),
        pytest.param(
            "", {"bias/adam_v": DOUBLE}, "bias/adam_v of .*float64", id="another type"
        ),
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(
    dropped: str, added: dict[str, Tensor], message: str
) -> None:
    layer = torch.nn.Linear(3, 2)
    groups = parameter_groups(layer.named_parameters(), weight_decay=0.01)
    optimizer = Lamb(groups, lr=0.1)
    state = state_tensors(optimizer)
    assert list(state) == NAMES

    foreign = {name: torch.ones_like(tensor) for name, tensor in state.items()}
    foreign.pop(dropped, None)
    with pytest.raises(LitebertError, match=f"LB-423(?s:.*){message}"):
        optim.load_state_tensors(optimizer, foreign | added)
    assert not any(tensor.any() for tensor in state.values())
