"""Training with the engine gives the reference's logits and gradients."""

import pytest
import torch

from litebert.config import AlbertConfig
from litebert.fast import accelerate, checkpoint_gradients
from litebert.nn import AlbertForPretraining, Batch

LENGTHS = (5, 5, 40, 1, 70, 2)
CONFIG = AlbertConfig(
    vocab_size=60,
    embedding_size=16,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=80,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
MASKED = torch.tensor([3, 7, 11, 60, 70, 100, 122])


def _batch() -> Batch:
    ids = torch.randint(1, 60, (sum(LENGTHS),), generator=torch.Generator().manual_seed(0))
    return Batch.from_flat(ids, torch.zeros_like(ids), LENGTHS)


def _network(*, is_fast: bool, dtype: torch.dtype, **changes: object) -> AlbertForPretraining:
    network = AlbertForPretraining(
        CONFIG.model_copy(update=changes), dtype=dtype, generator=torch.Generator().manual_seed(1)
    ).train()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3)
    if is_fast:
        accelerate(network)
    return network


def _computed(network: AlbertForPretraining) -> list[torch.Tensor]:
    """Return the logits, then the gradients of all parameters."""
    masked, order = network(_batch(), MASKED)
    (masked.float().logsumexp(-1).sum() + order.square().sum()).backward()
    return [masked.float(), order, *(p.grad for p in network.parameters() if p.grad is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", ["full", "local"])
def test_logits_and_gradients_are_those_of_the_reference(dtype: torch.dtype, attention: str) -> None:
    changes = {"attention": attention, "attention_window": 3}
    exact, fast = (_computed(_network(is_fast=is_fast, dtype=dtype, **changes)) for is_fast in (False, True))
    ours, theirs = (torch.cat([x.detach().flatten() for x in found]) for found in (fast, exact))
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    assert (ours - theirs).norm() <= tolerance * theirs.norm()


def test_gradient_checkpointing_changes_no_bit_of_the_engine() -> None:
    found = []
    for is_checkpointed in (False, True):
        network = _network(is_fast=True, dtype=torch.bfloat16, hidden_dropout_prob=0.2)
        if is_checkpointed:
            checkpoint_gradients(network.albert)
        torch.manual_seed(1)
        found.append(_computed(network))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
