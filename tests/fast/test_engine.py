"""The engine gives what the plain network gives: in training, packed, in eight bits, and
in copies.
"""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.fast import (
    accelerate,
    calibrate,
    checkpoint_gradients,
    int8,
    is_packed,
    linear,
    pack,
    to_int8,
)
from litebert.fast.attention import AttentionKind
from litebert.inference.model import Model
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.plugins import ATTENTION_KINDS

MASKED = torch.tensor([5, 70, 61, 4, 132])
READ = torch.tensor([50, 0, 131, 3, 4, 60, 59, 44])
ACTIVATIONS = [{"hidden_act": act} for act in ("gelu", "relu", "tanh", "linear")]


def near(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Read the neighbors and the first token, as a plug-in's kind of attention may."""
    return ((query - key).abs() <= 4) | (key == 0) | (query == 0)


ATTENTION_KINDS.add("near", AttentionKind(near))
NEAR = {"attention": "near"}
SHAPES = [
    {},
    {"sharing": "none"},
    {"sharing": "ffn"},
    {"inner_group_num": 2},
    NEAR,
    *ACTIVATIONS,
]
LENGTHS = (3, 40, 16, 1, 33, 40)
IDS = torch.randint(1, 60, (sum(LENGTHS),), generator=torch.Generator().manual_seed(0))
BATCH = Batch.from_lists([each.tolist() for each in IDS.split(LENGTHS)])


def make(dtype: torch.dtype = torch.float32, **changes: object) -> AlbertForPretraining:
    """Make the same network at every call, with weights large enough that its steps
    differ.
    """
    sizes = {
        "vocab_size": 60,
        "embedding_size": 16,
        "hidden_size": 64,
        "num_attention_heads": 4,
    }
    sizes |= {
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "max_position_embeddings": 96,
    }
    config = AlbertConfig(**{**sizes, "initializer_range": 0.06, **changes})
    return AlbertForPretraining(
        config, dtype=dtype, generator=torch.Generator().manual_seed(1)
    ).eval()


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


def _pack_without_private_kernels(network: AlbertForPretraining) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (linear, int8):
            patch.setattr(module, "packing_pays", lambda *_: False)
        pack(network.albert)


WAYS = [
    lambda network: accelerate(network.albert),
    lambda network: pack(network.albert),
    _pack_without_private_kernels,
]


@pytest.mark.parametrize("changes", SHAPES)
@torch.inference_mode()
def test_every_state_is_that_of_the_plain_network(changes: dict[str, object]) -> None:
    short = Batch.from_lists([BATCH.ids[3:43].tolist()])
    for each, read in ((BATCH, READ), (short, torch.tensor([7, 0]))):
        plain = make(**changes).albert
        expected = list(plain.states(each))
        last = plain(each, read)
        assert torch.equal(expected[-1][read], last)
        for prepare in WAYS:
            engined = make(**changes)
            prepare(engined)
            for ours, theirs in zip(engined.albert.states(each), expected, strict=True):
                assert relative_difference(ours, theirs) < 2e-6
            assert relative_difference(engined.albert(each, read), last) < 2e-6
            engined.albert.depth = 2
            assert relative_difference(engined.albert(each), expected[2]) < 2e-6


@torch.no_grad()
def test_bf16_is_within_a_hundredth_of_float32() -> None:
    half = make(torch.bfloat16)
    expected = make().albert(BATCH)
    for prepare in WAYS[:2]:
        prepare(half)
        found = half.albert(BATCH)
        assert found.dtype == torch.bfloat16 and {
            p.dtype for p in half.parameters()
        } == {torch.float32}
        assert relative_difference(found, expected) < 2e-2


# Training


def _computed(network: AlbertForPretraining) -> list[Tensor]:
    found = network(BATCH, MASKED)
    (
        found.masked_lm.float().logsumexp(-1).sum()
        + found.sentence_order.square().sum()
    ).backward()
    return [
        *found.values(),
        *(p.grad for p in network.parameters() if p.grad is not None),
    ]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)]
)
@pytest.mark.parametrize("changes", [{}, NEAR, {"sharing": "none"}])
def test_logits_and_gradients_are_unchanged(
    dtype: torch.dtype, tolerance: float, changes: dict[str, object]
) -> None:
    engined = make(dtype, **changes).train()
    accelerate(engined.albert)
    found = [_computed(network) for network in (engined, make(**changes).train())]
    ours, theirs = (
        torch.cat([x.detach().float().flatten() for x in each]) for each in found
    )
    assert relative_difference(ours, theirs) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_checkpointing_changes_no_bit(dtype: torch.dtype) -> None:
    found = []
    for prepare in (accelerate, checkpoint_gradients):
        network = make(
            dtype, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1
        ).train()
        prepare(network.albert)
        torch.manual_seed(1)
        found.append(_computed(network))
    assert all(map(torch.equal, *found))


def test_in_bf16_small_gradients_survive_next_to_large_ones() -> None:
    network = make(torch.bfloat16).train()
    accelerate(network.albert)
    _computed(network)
    summed = network.albert.feed_forward[0].output.weight.grad
    assert summed.dtype == torch.float32
    # bits that bf16 does not have
    assert not torch.equal(summed, summed.bfloat16().float())


# Packed weights, and when they are discarded or packed again

CHANGES: dict[str, Callable[[Albert], object]] = {
    "train": lambda network: network.train(),
    "load": lambda network: network.load_state_dict(
        make(initializer_range=0.1).albert.state_dict()
    ),
    "move": lambda network: network.to(torch.float64).to(torch.float32),
    # a norm would undo a shift of all
    "write": lambda network: network.feed_forward[0].output.bias[0].add_(3.0),
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_packed_weights_are_discarded_when_the_weights_may_change(change: str) -> None:
    network = make(hidden_act="gelu")
    short = Batch.from_lists([[2, 7, 9, 3]])
    pack(network.albert)
    before = network.albert(short)
    CHANGES[change](network.albert)
    assert not is_packed(network.albert)
    assert (relative_difference(network.albert(short), before) < 1e-6) == (
        change in ("train", "move")
    )


@pytest.mark.parametrize(
    "copier", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))]
)
@pytest.mark.parametrize(
    "kind", ["plain", "training", "packed", "bf16", "near", "int8"]
)
def test_a_copy_computes_the_same(
    kind: str, copier: Callable[[AlbertForPretraining], AlbertForPretraining]
) -> None:
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    attention = "near" if kind == "near" else "full"
    network = make(dtype, attention=attention)
    if kind != "plain":
        accelerate(network.albert)
    if kind == "int8":
        to_int8(network, calibrate(network.albert, [BATCH]))
    if kind not in ("plain", "training"):
        pack(network.albert)
    copied = copier(network)
    with torch.no_grad():
        for each in (BATCH, Batch.from_lists([[2, 7, 9, 3]])):
            assert all(
                map(
                    torch.equal, network.albert.states(each), copied.albert.states(each)
                )
            )
    assert (
        is_packed(copied.albert)
        == is_packed(network.albert)
        == (kind not in ("plain", "training"))
    )
    if kind == "training":
        assert all(
            map(torch.equal, *(_computed(each.train()) for each in (network, copied)))
        )
    elif kind != "plain":  # packed again, in its own memory
        watches = [each.albert.engine.packed.watch for each in (network, copied)]
        assert watches[0].stamps != watches[1].stamps


# Kernels without a public name


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)]
)
@pytest.mark.parametrize("num_rows", [1, 17, 128, 1_000])
def test_private_kernels_multiply_any_number_of_rows_correctly(
    dtype: torch.dtype, tolerance: float, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If torch renames them, everything still works, only slower; this test notices
    it.
    """
    draws = torch.Generator().manual_seed(0)
    weight, bias, x, y = (
        torch.randn(*s, generator=draws)
        for s in ((70, 90), (70,), (num_rows, 90), (num_rows, 70))
    )
    try:
        product = linear.onednn_linear(weight.to(dtype), bias.to(dtype), "linear")
    except RuntimeError as error:
        assert "needs the cpu support" in str(error)
        pytest.skip("this CPU has no products in bf16")
    expected = torch.nn.functional.linear(x, weight, bias)
    assert relative_difference(product(x.to(dtype), None), expected) < tolerance
    for in_pieces in (False, True):
        monkeypatch.setattr(
            linear, "_likes_pieces", lambda *_, answer=in_pieces: answer
        )
        assert (
            relative_difference(product(x.to(dtype), y.to(dtype)), expected + y)
            < tolerance
        )


# Eight bits


@torch.no_grad()
def test_eight_bits_stay_close_with_their_kernels_and_without() -> None:
    exact = make().albert
    rows = torch.tensor([60, 0, 2])
    eight = copy.deepcopy(exact)
    calibration = calibrate(eight, [BATCH])
    torch.testing.assert_close(
        calibration.shifts[1, 0],
        list(exact.states(BATCH))[1].mean(0),
        rtol=1e-4,
        atol=1e-5,
    )
    to_int8(eight, calibration)
    plain = eight(BATCH)  # in float32, with weights that were rounded
    pack(eight)
    found = eight(BATCH)
    assert relative_difference(plain, exact(BATCH)) < 0.05
    assert relative_difference(found, exact(BATCH)) < 0.05
    assert relative_difference(eight(BATCH, rows), found[rows]) < 0.01
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "kernels_work", lambda: False)
        pack(eight)
    assert relative_difference(eight(BATCH), plain) < 1e-5


@pytest.mark.skipif(
    not int8.kernels_work(),
    reason="this CPU has no eight-bit products that are right at the ends",
)
@torch.no_grad()
def test_eight_bits_stay_close_with_channels_far_from_zero() -> None:
    network = make(initializer_range=0.02).albert
    for name, parameter in network.named_parameters():
        if name.endswith("norm.bias") and "embedding" not in name:
            parameter[3] = -200.0
    exact = network(BATCH)
    to_int8(network, calibrate(network, [BATCH]))
    pack(network)
    # 5.7e-4; without the shift, 1.7e-3
    assert relative_difference(network(BATCH)[:, 4:], exact[:, 4:]) < 1e-3


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(LitebertError, match="LB-975"):
        Model.load(backend="openvin")
