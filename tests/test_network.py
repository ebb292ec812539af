"""The network: its blocks, sizes, initial weights and depth (tests/folder compares its
outputs with transformers).
"""

import pytest
import torch

from litebert.api.sizes import sizes_of
from litebert.config import PRESETS, AlbertConfig
from litebert.errors import LitebertError
from litebert.nn import Albert, AlbertForPretraining, Batch, depth_plan

SMALL = AlbertConfig(
    vocab_size=60,
    embedding_size=12,
    hidden_size=24,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=32,
)


def num_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_the_parameters_that_sizes_prints(preset: str) -> None:
    config = PRESETS[preset]
    with torch.device("meta"):
        network = AlbertForPretraining(config)
    expected = sizes_of(config)
    assert num_parameters(network) == expected.total
    assert num_parameters(network.albert) == expected.body


# ---- depth ---------------------------------------------------------------------------

THREE_GROUPS = {"num_hidden_layers": 10, "num_hidden_groups": 3}
TWO_GROUPS_OF_TWO = {"inner_group_num": 2, "num_hidden_groups": 2}


@pytest.mark.parametrize(
    ("changes", "attention", "feed_forward"),
    [
        pytest.param({}, "0000", "0000", id="all shared"),
        # the group of a layer is int(layer / layers * groups)
        pytest.param(THREE_GROUPS, "0000111222", "0000111222", id="three groups"),
        pytest.param(TWO_GROUPS_OF_TWO, "01012323", "01012323", id="groups of two"),
        pytest.param({"sharing": "attention"}, "0000", "0123", id="attention shared"),
        pytest.param({"sharing": "ffn"}, "0123", "0000", id="feed-forward shared"),
        pytest.param({"sharing": "none"}, "0123", "0123", id="nothing shared"),
    ],
)
def test_a_depth_plan_names_the_blocks_of_each_layer(
    changes: dict[str, object], attention: str, feed_forward: str
) -> None:
    """Each digit is the number of the block that a layer uses."""
    plan = depth_plan(SMALL.model_copy(update=changes))
    assert "".join(str(layer.attention) for layer in plan) == attention
    assert "".join(str(layer.feed_forward) for layer in plan) == feed_forward


def test_groups_that_transformers_would_split_otherwise_are_refused() -> None:
    with pytest.raises(ValueError, match="transformers would split 18 layers"):
        AlbertConfig(num_hidden_layers=18, num_hidden_groups=14)


# ---- initial weights -----------------------------------------------------------------


def new_network(seed: int = 5) -> AlbertForPretraining:
    """Return a network whose table of words has 60,000 weights."""
    config = SMALL.model_copy(update={"vocab_size": 5_000})
    generator = torch.Generator().manual_seed(seed)
    return AlbertForPretraining(config, generator=generator)


def test_the_same_seed_gives_the_same_weights() -> None:
    first = new_network().state_dict()
    second = new_network().state_dict()
    assert list(first) == list(second)
    for name, weights in first.items():
        assert torch.equal(weights, second[name]), name


def test_weights_start_as_a_normal_truncated_at_two_sigma() -> None:
    table = new_network().albert.embedding.word.weight
    # sigma is 0.02; what is left within two of it has 0.88 of its deviation
    assert table.abs().max() <= 0.04
    assert table.std().item() == pytest.approx(0.0176, abs=2e-4)


def test_biases_start_at_zero() -> None:
    for name, parameter in new_network().named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_embeddings_of_the_hidden_size_are_projected_only_if_asked_for(
    is_asked_for: bool,
) -> None:
    changes = {"embedding_size": 24, "embedding_projection": is_asked_for}
    network = Albert(SMALL.model_copy(update=changes))
    names = [name for name, _ in network.named_parameters()]
    assert any("projection" in name for name in names) is is_asked_for


# ---- what is refused -----------------------------------------------------------------


def test_a_sequence_that_is_too_long_is_refused() -> None:
    too_long = Batch.from_lists([[5] * 33])
    with pytest.raises(LitebertError, match="LB-451"):
        Albert(SMALL)(too_long)


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(LitebertError, match="LB-450"):
        Batch.from_lists([[2, 3], []])


def test_a_row_of_padding_alone_is_refused() -> None:
    ids = torch.ones(2, 2, dtype=torch.int64)
    mask = torch.tensor([[0, 0], [1, 1]])
    with pytest.raises(LitebertError, match="LB-450"):
        Batch.from_padded(ids, mask)
