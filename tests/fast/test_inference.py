"""Packed and eight-bit networks give what the plain network gives."""

import copy
from collections.abc import Iterator

import pytest
import torch
from litebert.fast.int8_product import ByteGrid, quantize

from litebert.config import AlbertConfig
from litebert.config.schema import Sharing
from litebert.fast import calibrate, int8_product, is_packed, pack, packed, rectangles, to_int8
from litebert.fast.attention import Layout, full
from litebert.fast.int8 import Int8Calibration
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.nn.model import Attend, AttentionBlock, FeedForwardBlock, attention

LENGTHS = (3, 40, 16, 1, 33, 40)


def _config(**changes: object) -> AlbertConfig:
    return AlbertConfig(
        vocab_size=60,
        embedding_size=16,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=160,
        num_hidden_layers=3,
        max_position_embeddings=48,
        **changes,
    )


def _network(config: AlbertConfig, dtype: torch.dtype = torch.float32) -> Albert:
    return Albert(config, dtype=dtype, generator=torch.Generator().manual_seed(1)).eval()


def _batch(lengths: tuple[int, ...] = LENGTHS) -> Batch:
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 60, (sum(lengths),), generator=draws)
    return Batch.from_flat(ids, torch.zeros_like(ids), lengths)


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


@pytest.mark.parametrize("sharing", ["all", "none", "ffn"])
@pytest.mark.parametrize("lengths", [LENGTHS, (32, 32), (7,)])
@torch.no_grad()
def test_packed_weights_give_the_same_states(sharing: Sharing, lengths: tuple[int, ...]) -> None:
    network, batch = _network(_config(sharing=sharing)), _batch(lengths)
    expected = network(batch)
    pack(network)
    assert _difference(network(batch), expected) < 1e-6


@pytest.mark.parametrize("activation", ["gelu_new", "gelu", "relu", "tanh", "linear"])
@torch.no_grad()
def test_every_activation_is_fused_as_it_is(activation: str) -> None:
    network, batch = _network(_config(hidden_act=activation)), _batch()
    expected = network(batch)
    pack(network)
    assert _difference(network(batch), expected) < 1e-6


@torch.no_grad()
def test_bf16_is_within_a_hundredth_of_float32() -> None:
    exact, half = _network(_config()), _network(_config(), torch.bfloat16)
    pack(half)
    assert _difference(half(_batch()), exact(_batch())) < 1e-2


@torch.no_grad()
def test_without_the_private_kernels_the_public_ones_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "pays", lambda kernel, dtype: False)
    network = _network(_config())
    expected = network(_batch())
    pack(network)
    assert _difference(network(_batch()), expected) < 1e-6


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(packed._mkl, torch.float32), (packed._onednn, torch.float32), (packed._onednn, torch.bfloat16)],
)
@pytest.mark.parametrize("num_rows", [1, 17, 128, 1_000])
def test_private_kernels_multiply_rightly_any_number_of_rows(
    kernel: packed.Kernel, dtype: torch.dtype, num_rows: int
) -> None:
    """Where torch has renamed them, everything works, slower; this test says so."""
    draws = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(70, 90, generator=draws), torch.randn(70, generator=draws)
    x = torch.randn(num_rows, 90, generator=draws)
    y = torch.randn(num_rows, 70, generator=draws)
    product = kernel(weight.to(dtype), bias.to(dtype), "linear")
    expected, tolerance = torch.nn.functional.linear(x, weight, bias), 1e-6
    if dtype == torch.bfloat16:
        tolerance = 1e-2
    assert _difference(product(x.to(dtype), None), expected) < tolerance
    assert _difference(product(x.to(dtype), y.to(dtype)), expected + y) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_multiplied_in_pieces_are_the_same_rows(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = torch.Generator().manual_seed(0)
    x, y, weight, bias = (
        torch.randn(*shape, generator=draws).to(dtype) for shape in ((900, 64), (900, 32), (32, 64), (32,))
    )
    product, found = packed._onednn(weight, bias, "linear"), []
    for answer in (False, True):
        monkeypatch.setattr(packed, "_likes_pieces", lambda *_, answer=answer: answer)
        found.append(product(x, y))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("is_prepared", [True, False])
@torch.no_grad()
def test_query_rows_are_those_of_the_whole(is_prepared: bool) -> None:
    network, batch = _network(_config()), _batch()
    if is_prepared:
        pack(network)
    read = torch.tensor([50, 0, 131, 3, 4, 60, 59, 44])
    assert _difference(network(batch, read), network(batch)[read]) < 1e-6


def test_gradients_through_query_rows_are_those_of_the_whole() -> None:
    batch, read = _batch(), torch.tensor([0, 3, 43, 59, 60, 93])
    gradients = []
    for is_whole in (True, False):
        network = _network(_config())
        rows = network(batch)[read] if is_whole else network(batch, read)
        rows.square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]))
    assert _difference(gradients[1], gradients[0]) < 1e-5


def test_nothing_but_the_words_to_predict_and_the_first_tokens_reaches_the_heads() -> None:
    network = AlbertForPretraining(_config(), generator=torch.Generator().manual_seed(1)).eval()
    batch, masked = _batch(), torch.tensor([5, 70, 61])
    hidden = network.albert(batch)
    output = network(batch, masked)
    words = network.masked_lm(hidden[masked], network.albert.embedding.word.weight)
    order = network.sentence_order(network.albert.pool(hidden[batch.first_tokens]))
    torch.testing.assert_close(output.masked_lm, words, rtol=0, atol=1e-6)
    torch.testing.assert_close(output.sentence_order, order, rtol=0, atol=1e-6)


@torch.no_grad()
def test_a_text_alone_answers_as_in_a_batch() -> None:
    network = _network(_config())
    pack(network)
    whole, start = network(_batch()), 3
    alone = Batch.from_flat(_batch().ids[start : start + 40], torch.zeros(40, dtype=torch.int64), (40,))
    assert _difference(network(alone), whole[start : start + 40]) < 1e-6


@pytest.mark.parametrize("change", ["train", "load", "move"])
@torch.no_grad()
def test_what_was_packed_is_forgotten_when_the_weights_may_change(change: str) -> None:
    network = _network(_config())
    pack(network)
    if change == "train":
        network.train()
    elif change == "load":
        network.load_state_dict(_network(_config()).state_dict())
    else:
        network.to(torch.float64).to(torch.float32)
    assert not is_packed(network)


def test_gradients_are_there_although_weights_are_packed() -> None:
    network = _network(_config())
    pack(network)
    network(_batch()).sum().backward()
    assert network.attention[0].query.weight.grad is not None


@pytest.mark.parametrize("queries", [None, [0, 3, 43, 59, 60, 93], [2, 60, 60]])
@pytest.mark.parametrize("attend", [full, rectangles.attend])
def test_attention_of_any_rows_is_the_formula(attend: Attend, queries: list[int] | None) -> None:
    draws = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, sum(LENGTHS), 2, 8, generator=draws).unbind(0)
    expected = attention(q, k, v, Layout(_batch()))
    rows = slice(None) if queries is None else torch.tensor(queries)
    layout = Layout(_batch(), None if queries is None else torch.tensor(queries))
    torch.testing.assert_close(attend(q[rows], k, v, layout, 0.0), expected[rows])
    torch.testing.assert_close(attention(q[rows], k, v, layout), expected[rows])


@torch.no_grad()
def test_eight_bits_stay_close_and_their_kernels_say_what_public_operators_say() -> None:
    exact = _network(_config())
    eight = copy.deepcopy(exact)
    to_int8(eight, calibrate(eight, [_batch()]))
    pack(eight)
    found = eight(_batch())
    assert _difference(found, exact(_batch())) < 0.05
    rows = torch.tensor([60, 0, 2])
    assert _difference(eight(_batch(), rows), found[rows]) < 0.01
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8_product, "kernels_work", lambda: False)
        pack(eight)
    assert _difference(eight(_batch()), found) < 0.01


def _products(network: Albert) -> Iterator[torch.nn.Linear]:
    for mixing, widening in zip(network.attention, network.feed_forward, strict=True):
        assert isinstance(mixing, AttentionBlock)
        assert isinstance(widening, FeedForwardBlock)
        yield from (mixing.query, mixing.key, mixing.value, mixing.output)
        yield from (widening.intermediate, widening.output)


@torch.no_grad()
def test_channels_far_from_zero_cost_eight_bits_little() -> None:
    network = _network(_config())
    for block in network.modules():
        if isinstance(block, AttentionBlock | FeedForwardBlock):
            block.norm.bias[3] = -200.0
        if isinstance(block, torch.nn.Linear):
            block.weight *= 2
    exact, found = network(_batch()), calibrate(network, [_batch()])
    ends = [float(exact.min()), float(exact.max())]
    biases = torch.cat([block.bias for block in _products(network)])
    unshifted = Int8Calibration(found.ranges.clone(), torch.zeros_like(found.shifts), biases.expand_as(found.biases))
    unshifted.ranges[:, [0, 2]] = torch.tensor(ends)
    errors = []
    for calibration in (found, unshifted):
        eight = copy.deepcopy(network)
        to_int8(eight, calibration)
        pack(eight)
        errors.append(float((eight(_batch()) - exact).norm()))
    assert errors[0] < 0.5 * errors[1], errors


def test_bytes_are_rounded_to_the_grid_and_cut_at_its_ends() -> None:
    grid = ByteGrid.over(-1.0, 1.55)
    found = quantize(torch.tensor([[-5.0, -0.011, 0.0, 0.004, 0.006, 9.0]]), grid)
    assert found.tolist() == [[0, 99, 100, 100, 101, 255]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8_product, "_rounds_at_once", lambda: False)
        assert quantize(torch.tensor([[-5.0, -0.011, 0.0, 9.0]]), grid).tolist() == [[0, 99, 100, 255]]


def test_probes_leave_the_random_numbers_of_others_alone() -> None:
    before = torch.get_rng_state()
    for probe in (packed.pays, packed._likes_pieces, rectangles._likes_fused, int8_product.kernels_work):
        probe.cache_clear()
    packed.pays(packed._onednn, torch.bfloat16)
    packed._likes_pieces(2, torch.bfloat16)
    rectangles._likes_fused(32)
    int8_product.kernels_work()
    assert torch.equal(torch.get_rng_state(), before)
