"""The network against its definition."""

import pytest
import torch

from litebert.config import PRESETS, AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.nn import ACTIVATIONS, Albert, AlbertForPretraining, AlbertForTask, Batch, depth_plan
from litebert.study import sizes_of

SIZES = {"vocab_size": 60, "embedding_size": 12, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3}
SMALL = AlbertConfig(**SIZES, intermediate_size=40, max_position_embeddings=32)


def test_a_sequence_gets_the_same_alone_in_a_ragged_batch_and_among_equals() -> None:
    draws = torch.Generator().manual_seed(7)
    network = Albert(SMALL).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=draws)  # large, so that a mistake shows
    ids = [torch.randint(5, 60, (n,), generator=draws).tolist() for n in (9, 4, 13)]
    segments = [[0] * (len(each) // 2) + [1] * (len(each) - len(each) // 2) for each in ids]
    together = network(Batch.from_lists(ids, segments)).split([9, 4, 13])
    for found, own_ids, own_segments in zip(together, ids, segments, strict=True):
        torch.testing.assert_close(found, network(Batch.from_lists([own_ids], [own_segments])), rtol=0, atol=2e-6)
    equal = network(Batch.from_lists([[5, 6, 7], [8, 9, 10]]))
    among = network(Batch.from_lists([[5, 6, 7], [8, 9, 10], [11, 12]]))
    torch.testing.assert_close(equal, among[:6], rtol=0, atol=2e-6)


def test_padding_goes_in_and_comes_out_where_it_was() -> None:
    ids = torch.tensor([[5, 6, 0], [7, 8, 9]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    batch = Batch.from_padded(ids, mask)
    assert batch.lengths == (2, 3)
    assert torch.equal(batch.to_padded(batch.ids), ids)
    assert torch.equal(batch.to_padded(batch.ids, width=4)[:, :3], ids)


def test_every_preset_has_the_parameters_that_sizes_prints() -> None:
    for name, config in PRESETS.items():
        with torch.device("meta"):
            network = AlbertForPretraining(config)
        expected = sizes_of(config)
        counts = [sum(p.numel() for p in each.parameters()) for each in (network, network.albert)]
        assert counts == [expected.total, expected.body], name


@pytest.mark.parametrize(
    ("changes", "attention", "feed_forward"),
    [
        ({}, "0000", "0000"),
        ({"num_hidden_groups": 2}, "0011", "0011"),
        ({"num_hidden_layers": 10, "num_hidden_groups": 3}, "0000111222", "0000111222"),
        ({"sharing": "attention"}, "0000", "0123"),
        ({"sharing": "ffn"}, "0123", "0000"),
        ({"sharing": "none"}, "0123", "0123"),
        ({"inner_group_num": 2}, "01010101", "01010101"),
        ({"inner_group_num": 2, "num_hidden_groups": 2}, "01012323", "01012323"),
    ],
)
def test_plans_name_the_blocks_of_each_step(changes: dict[str, object], attention: str, feed_forward: str) -> None:
    plan = depth_plan(SMALL.model_copy(update=changes))  # uneven groups as officially: int(i / layers * groups)
    assert "".join(str(step.attention) for step in plan) == attention
    assert "".join(str(step.feed_forward) for step in plan) == feed_forward


def test_weights_begin_as_a_normal_cut_at_two_sigma_the_same_of_one_generator() -> None:
    config = SMALL.model_copy(update={"vocab_size": 5_000})
    networks = [AlbertForPretraining(config, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    first, second = (network.state_dict() for network in networks)
    assert all(torch.equal(first[name], second[name]) for name in first)
    table = networks[0].albert.embedding.word.weight
    assert table.abs().max() <= 0.04
    assert table.std().item() == pytest.approx(0.0176, abs=2e-4)
    assert all(not p.any() for n, p in networks[0].named_parameters() if n.endswith("bias"))
    for asked, has in ((False, False), (True, True)):  # E equal to H has no projection unless asked for
        square = SMALL.model_copy(update={"embedding_size": 24, "embedding_projection": asked})
        assert any("projection" in name for name, _ in Albert(square).named_parameters()) is has


def test_the_official_gelu_is_the_tanh_form() -> None:
    result = ACTIVATIONS["gelu_new"](torch.tensor([-3.0, -1.0, -0.5, 0.5, 1.0, 3.0]))
    values = (-0.0036374, -0.1588080, -0.1542860, 0.3457140, 0.8411920, 2.9963626)  # of modeling.py L299
    assert result.tolist() == pytest.approx(values, abs=1e-6)


@torch.no_grad()
def test_the_head_at_the_depth_answers() -> None:
    head, batch = HeadConfig(kind="sequence-classification", labels=("a", "b")), Batch.from_lists([[2, 7, 3], [2, 8]])
    network, single = (AlbertForTask(SMALL, head, has_exits=has_exits).eval() for has_exits in (True, False))
    by_step, states = network.by_step(batch), list(single.albert.states(batch))
    assert len(by_step) == 4
    for depth in range(1, 5):
        network.albert.depth = single.albert.depth = depth
        torch.testing.assert_close(network(batch), by_step[depth - 1], rtol=0, atol=1e-6)
        torch.testing.assert_close(network.by_step(batch), by_step[:depth], rtol=0, atol=1e-6)
        expected = single.head(single.albert.pool(states[depth][batch.first_tokens]))
        torch.testing.assert_close(single(batch), expected, rtol=0, atol=1e-6)


def test_a_sequence_that_is_too_long_or_empty_is_refused() -> None:
    with pytest.raises(LitebertError, match="LB-451"):
        Albert(SMALL)(Batch.from_lists([[5] * 33]))
    with pytest.raises(LitebertError, match="LB-450"):
        Batch.from_lists([[2, 3], []])
