"""The network against its definition."""

import math
from collections.abc import Callable

import pytest
import torch

from litebert.config import PRESETS, AlbertConfig
from litebert.errors import LitebertError
from litebert.nn import Albert, AlbertForPretraining, Batch, depth_plan
from litebert.nn.model import ACTIVATIONS
from litebert.study import sizes_of

Widen = Callable[[torch.nn.Module], None]


def test_a_ragged_batch_gives_each_sequence_what_it_gets_alone(
    small: AlbertConfig, ragged: Batch, widened: Widen
) -> None:
    network = Albert(small).eval()
    widened(network)
    together = network(ragged).split(list(ragged.lengths))
    sizes = list(ragged.lengths)
    parts = zip(ragged.ids.split(sizes), ragged.segments.split(sizes), strict=True)
    for one, (ids, segments) in zip(together, parts, strict=True):
        alone = network(Batch.from_lists([ids.tolist()], [segments.tolist()]))
        torch.testing.assert_close(one, alone, rtol=0, atol=2e-6)


def test_sequences_of_one_length_give_the_same_as_in_a_ragged_batch(small: AlbertConfig, widened: Widen) -> None:
    network = Albert(small).eval()
    widened(network)
    equal = network(Batch.from_lists([[5, 6, 7], [8, 9, 10]]))
    ragged = network(Batch.from_lists([[5, 6, 7], [8, 9, 10], [11, 12]]))
    torch.testing.assert_close(equal, ragged[:6], rtol=0, atol=2e-6)


def test_padding_goes_in_and_comes_out_where_it_was() -> None:
    ids = torch.tensor([[5, 6, 0], [7, 8, 9]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    batch = Batch.from_padded(ids, mask)
    assert batch.lengths == (2, 3)
    assert torch.equal(batch.to_padded(batch.ids), ids)
    assert torch.equal(batch.to_padded(batch.ids, width=4)[:, :3], ids)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_the_parameters_that_sizes_prints(name: str) -> None:
    with torch.device("meta"):
        network = AlbertForPretraining(PRESETS[name])
    expected = sizes_of(PRESETS[name])
    assert sum(p.numel() for p in network.parameters()) == expected.total
    assert sum(p.numel() for p in network.albert.parameters()) == expected.body


@pytest.mark.parametrize(
    ("changes", "attention", "feed_forward"),
    [
        ({}, [0, 0, 0, 0], [0, 0, 0, 0]),
        ({"num_hidden_groups": 2}, [0, 0, 1, 1], [0, 0, 1, 1]),
        ({"sharing": "attention"}, [0, 0, 0, 0], [0, 1, 2, 3]),
        ({"sharing": "ffn"}, [0, 1, 2, 3], [0, 0, 0, 0]),
        ({"sharing": "none"}, [0, 1, 2, 3], [0, 1, 2, 3]),
        ({"inner_group_num": 2}, [0, 1] * 4, [0, 1] * 4),
        ({"inner_group_num": 2, "num_hidden_groups": 2}, [0, 1, 0, 1, 2, 3, 2, 3], [0, 1, 0, 1, 2, 3, 2, 3]),
    ],
)
def test_plans_name_the_blocks_of_each_step(
    small: AlbertConfig, changes: dict[str, object], attention: list[int], feed_forward: list[int]
) -> None:
    plan = depth_plan(small.model_copy(update=changes))
    assert [step.attention for step in plan] == attention
    assert [step.feed_forward for step in plan] == feed_forward


def test_layers_in_uneven_groups_follow_the_official_rule() -> None:
    plan = depth_plan(AlbertConfig(num_hidden_layers=10, num_hidden_groups=3))
    assert [step.attention for step in plan] == [int(i / 10 * 3) for i in range(10)]


def test_the_shared_gradient_is_the_sum_over_all_uses(small: AlbertConfig, ragged: Batch, widened: Widen) -> None:
    shared = Albert(small).double()
    widened(shared)
    unshared = Albert(small.model_copy(update={"sharing": "none"})).double()
    weights = shared.state_dict()
    for name in unshared.state_dict():
        if ".norm" in name or "attention." in name or "feed_forward." in name:
            first = name.replace(name.split(".")[1], "0") if name[0] in "af" else name
            weights[name] = weights[first]
    unshared.load_state_dict(weights)
    for network in (shared, unshared):
        network(ragged).square().sum().backward()
    total = sum(block.query.weight.grad for block in unshared.attention)
    torch.testing.assert_close(shared.attention[0].query.weight.grad, total)


def test_e_equal_to_h_has_no_projection_unless_asked_for(small: AlbertConfig) -> None:
    square = small.model_copy(update={"embedding_size": 24})
    names = [name for name, _ in Albert(square).named_parameters()]
    assert not any("projection" in name for name in names)
    asked = Albert(square.model_copy(update={"embedding_projection": True}))
    assert any("projection" in name for name, _ in asked.named_parameters())


def test_weights_begin_as_a_normal_cut_at_two_sigma(small: AlbertConfig) -> None:
    network = AlbertForPretraining(small.model_copy(update={"vocab_size": 5_000}))
    table = network.albert.embedding.word.weight
    assert table.abs().max() <= 0.04
    assert table.std().item() == pytest.approx(0.0176, abs=2e-4)
    assert all(not p.any() for n, p in network.named_parameters() if n.endswith("bias"))


def test_one_generator_gives_one_initialisation(small: AlbertConfig) -> None:
    first, second = (Albert(small, generator=torch.Generator().manual_seed(5)).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_hidden_dropout_reaches_the_feed_forward_output(small: AlbertConfig) -> None:
    config = small.model_copy(update={"hidden_dropout_prob": 0.5})
    block = Albert(config).feed_forward[0].train()
    hidden = torch.randn(26, 24)
    torch.manual_seed(0)
    first = block(hidden)
    assert not torch.allclose(first, block(hidden))
    kept = block.eval()
    assert torch.equal(kept(hidden), kept(hidden))


def test_attention_dropout_changes_training_only(small: AlbertConfig, ragged: Batch, widened: Widen) -> None:
    network = Albert(small.model_copy(update={"attention_probs_dropout_prob": 0.5})).train()
    widened(network)
    assert not torch.equal(network(ragged), network(ragged))
    network.eval()
    assert torch.equal(network(ragged), network(ragged))


def test_logits_at_masked_positions_are_those_of_all_positions(
    small: AlbertConfig, ragged: Batch, widened: Widen
) -> None:
    network = AlbertForPretraining(small).eval()
    widened(network)
    everywhere = network(ragged, torch.arange(len(ragged.ids))).masked_lm
    chosen = torch.tensor([2, 5, 20])
    torch.testing.assert_close(network(ragged, chosen).masked_lm, everywhere[chosen])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # spec: gelu(-3, -1, -.5, .5, 1, 3) of the official tanh form
        ("gelu_new", (-0.0036374, -0.1588080, -0.1542860, 0.3457140, 0.8411920, 2.9963626)),
        ("gelu", tuple(x * 0.5 * (1 + math.erf(x / 2**0.5)) for x in (-3, -1, -0.5, 0.5, 1, 3))),
        ("relu", (0, 0, 0, 0.5, 1, 3)),
    ],
)
def test_activations_by_name(name: str, values: tuple[float, ...]) -> None:
    result = ACTIVATIONS[name](torch.tensor([-3.0, -1.0, -0.5, 0.5, 1.0, 3.0]))
    assert result.tolist() == pytest.approx(values, abs=1e-6)


def test_a_constant_row_is_normalised_to_beta() -> None:
    norm = Albert(AlbertConfig(hidden_size=8, num_attention_heads=2)).attention[0].norm
    torch.nn.init.uniform_(norm.bias)
    assert torch.equal(norm(torch.full((1, 8), 3.0))[0], norm.bias)


def test_a_sequence_longer_than_the_position_table_is_refused(small: AlbertConfig) -> None:
    with pytest.raises(LitebertError, match="LB-451"):
        Albert(small)(Batch.from_lists([[5] * 33]))


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(LitebertError, match="LB-450"):
        Batch.from_lists([[2, 3], []])
