"""Muon: its matrices move by orthogonal steps, and torch's own Muon moves alike."""

import pytest
import torch

from litebert.config import AlbertConfig, OptimConfig
from litebert.nn import AlbertForPretraining
from litebert.optim import Muon, averaged, build_optimizer, load_state_tensors, state_tensors
from litebert.optim.optimizers import orthogonalised

CONFIG = OptimConfig(name="muon", learning_rate=0.003, muon_learning_rate=0.004, beta2=0.98)


def network() -> AlbertForPretraining:
    config = AlbertConfig(vocab_size=40, embedding_size=8, hidden_size=16, num_attention_heads=2, intermediate_size=32)
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (64, 16)])
def test_every_singular_value_ends_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))

    values = torch.linalg.svdvals(orthogonalised(matrix))

    assert values.min() > 0.6
    assert values.max() < 1.3


def test_a_zero_matrix_stays_zero() -> None:
    assert not orthogonalised(torch.zeros(3, 5)).any()


def test_hidden_matrices_are_muons_and_tables_classifiers_and_vectors_are_adams() -> None:
    model = network()
    optimizer = build_optimizer(CONFIG, model.named_parameters())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices = {names[id(p)] for g in optimizer.param_groups if g["is_matrix"] for p in g["params"]}

    assert matrices == {
        "albert.embedding.projection.weight",
        "albert.attention.0.query.weight",
        "albert.attention.0.key.weight",
        "albert.attention.0.value.weight",
        "albert.attention.0.output.weight",
        "albert.feed_forward.0.intermediate.weight",
        "albert.feed_forward.0.output.weight",
        "albert.pooler.weight",
        "masked_lm.dense.weight",
    }
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


@pytest.mark.parametrize("name", ["muon", "adamw", "lamb"])
def test_training_resumes_bit_equal_with_counts_and_averages(name: str) -> None:
    config = CONFIG.model_copy(update={"name": name, "bias_correction": True, "average_decay": 0.99})
    model, resumed = network(), network()
    optimizer = build_optimizer(config, model.named_parameters())
    train(model, optimizer, range(3))
    saved = {n: t.clone() for n, t in state_tensors(optimizer, model.named_parameters()).items()}
    resumed.load_state_dict(model.state_dict())
    train(model, optimizer, range(3, 6))

    again = build_optimizer(config, resumed.named_parameters())
    load_state_tensors(again, resumed.named_parameters(), saved)
    train(resumed, again, range(3, 6))

    with averaged(optimizer), averaged(again):
        for ours, theirs in zip(model.parameters(), resumed.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    for ours, theirs in zip(model.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_average_takes_the_place_of_the_weights_and_gives_it_back() -> None:
    model = network()
    optimizer = build_optimizer(CONFIG.model_copy(update={"average_decay": 0.5}), model.named_parameters())
    train(model, optimizer, range(2))
    weights = [parameter.clone() for parameter in model.parameters()]

    with averaged(optimizer):
        inside = [parameter.clone() for parameter in model.parameters()]

    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    assert not all(torch.equal(i, w) for i, w in zip(inside, weights, strict=True))


def train(model: AlbertForPretraining, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
