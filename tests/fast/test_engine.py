"""The engine gives what the plain network gives: in training, packed, in eight bits, and
in copies.
"""

import copy
import pickle
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

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
    refuse_non_finite,
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
BATCH = Batch.from_lists([ids.tolist() for ids in IDS.split(LENGTHS)])
SHORT = Batch.from_lists([[2, 7, 9, 3]])
SIZES = {
    "vocab_size": 60,
    "embedding_size": 16,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "max_position_embeddings": 96,
    "initializer_range": 0.06,
}


def make(dtype: torch.dtype = torch.float32, **changes: object) -> AlbertForPretraining:
    """Make the same network at every call, with weights large enough that its steps
    differ.
    """
    config = AlbertConfig(**{**SIZES, **changes})
    draws = torch.Generator().manual_seed(1)
    return AlbertForPretraining(config, dtype=dtype, generator=draws).eval()


def relative_difference(computed: Tensor, expected: Tensor) -> float:
    difference = computed.float() - expected.float()
    return float(difference.norm() / expected.float().norm())


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
    one_text = Batch.from_lists([BATCH.ids[3:43].tolist()])
    for batch, read in ((BATCH, READ), (one_text, torch.tensor([7, 0]))):
        plain = make(**changes).albert
        states = list(plain.states(batch))
        last = plain(batch, read)
        assert torch.equal(states[-1][read], last)
        for prepare in WAYS:
            network = make(**changes)
            prepare(network)
            albert = network.albert
            for computed, expected in zip(albert.states(batch), states, strict=True):
                assert relative_difference(computed, expected) < 2e-6
            assert relative_difference(albert(batch, read), last) < 2e-6
            albert.depth = 2
            assert relative_difference(albert(batch), states[2]) < 2e-6


@torch.no_grad()
def test_bf16_is_within_a_hundredth_of_float32() -> None:
    half = make(torch.bfloat16)
    expected = make().albert(BATCH)
    for prepare in WAYS[:2]:
        prepare(half)
        states = half.albert(BATCH)
        assert states.dtype == torch.bfloat16
        # the weights themselves stay in float32
        assert {p.dtype for p in half.parameters()} == {torch.float32}
        assert relative_difference(states, expected) < 2e-2


# ---- training ------------------------------------------------------------------------


def outputs_and_gradients(network: AlbertForPretraining) -> list[Tensor]:
    """Return what a training step computes: the logits, then all gradients."""
    outputs = network(BATCH, MASKED)
    loss_of_words = outputs.masked_lm.float().logsumexp(-1).sum()
    loss_of_order = outputs.sentence_order.square().sum()
    (loss_of_words + loss_of_order).backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    return [*outputs.values(), *gradients]


def joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().float().flatten() for tensor in tensors])


def are_equal(first: Iterable[Tensor], second: Iterable[Tensor]) -> bool:
    """Return whether two lists of tensors have the same bits."""
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)]
)
@pytest.mark.parametrize("changes", [{}, NEAR, {"sharing": "none"}])
def test_logits_and_gradients_are_unchanged(
    dtype: torch.dtype, tolerance: float, changes: dict[str, object]
) -> None:
    engined = make(dtype, **changes).train()
    accelerate(engined.albert)
    computed = joined(outputs_and_gradients(engined))
    expected = joined(outputs_and_gradients(make(**changes).train()))
    assert relative_difference(computed, expected) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_checkpointing_changes_no_bit(dtype: torch.dtype) -> None:
    dropouts = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}
    computed = list[list[Tensor]]()
    for prepare in (accelerate, checkpoint_gradients):
        network = make(dtype, **dropouts).train()
        prepare(network.albert)
        torch.manual_seed(1)
        computed.append(outputs_and_gradients(network))
    assert are_equal(*computed)


def test_in_bf16_small_gradients_survive_next_to_large_ones() -> None:
    network = make(torch.bfloat16).train()
    accelerate(network.albert)
    outputs_and_gradients(network)
    summed = network.albert.feed_forward[0].output.weight.grad
    assert summed.dtype == torch.float32
    # bits that bf16 does not have
    assert not torch.equal(summed, summed.bfloat16().float())


# ---- packed weights, and when they are discarded or packed again ---------------------

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
    albert = make(hidden_act="gelu").albert
    pack(albert)
    before = albert(SHORT)
    CHANGES[change](albert)
    assert not is_packed(albert)
    is_same = relative_difference(albert(SHORT), before) < 1e-6
    assert is_same == (change in ("train", "move"))


def make_kind(kind: str) -> AlbertForPretraining:
    """Make a network in one of the states in which it may be copied."""
    if kind == "bf16":
        network = make(torch.bfloat16)
    elif kind == "near":
        network = make(**NEAR)
    else:
        network = make()
    if kind != "plain":
        accelerate(network.albert)
    if kind == "int8":
        to_int8(network, calibrate(network.albert, [BATCH]))
    if kind not in ("plain", "training"):
        pack(network.albert)
    return network


@pytest.mark.parametrize(
    "copier", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))]
)
@pytest.mark.parametrize(
    "kind", ["plain", "training", "packed", "bf16", "near", "int8"]
)
def test_a_copy_computes_the_same(
    kind: str, copier: Callable[[AlbertForPretraining], AlbertForPretraining]
) -> None:
    network = make_kind(kind)
    copied = copier(network)
    with torch.no_grad():
        for batch in (BATCH, SHORT):
            states = network.albert.states(batch)
            assert are_equal(copied.albert.states(batch), states)

    is_for_inference = kind not in ("plain", "training")
    assert is_packed(network.albert) == is_for_inference
    assert is_packed(copied.albert) == is_for_inference
    if is_for_inference:  # packed again, in its own memory
        stamps = network.albert.engine.packed.watch.stamps
        assert copied.albert.engine.packed.watch.stamps != stamps
    elif kind == "training":
        computed = outputs_and_gradients(copied.train())
        assert are_equal(computed, outputs_and_gradients(network.train()))


# ---- kernels without a public name ---------------------------------------------------


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
    weight = torch.randn(70, 90, generator=draws)
    bias = torch.randn(70, generator=draws)
    x = torch.randn(num_rows, 90, generator=draws)
    residual = torch.randn(num_rows, 70, generator=draws)
    try:
        product = linear.onednn_linear(weight.to(dtype), bias.to(dtype), "linear")
    except RuntimeError as error:
        assert "needs the cpu support" in str(error)
        pytest.skip("this CPU has no products in bf16")
    expected = torch.nn.functional.linear(x, weight, bias)
    assert relative_difference(product(x.to(dtype), None), expected) < tolerance
    for likes_pieces in (lambda *_: False, lambda *_: True):
        monkeypatch.setattr(linear, "_likes_pieces", likes_pieces)
        summed = product(x.to(dtype), residual.to(dtype))
        assert relative_difference(summed, expected + residual) < tolerance


# ---- eight bits ----------------------------------------------------------------------


@torch.no_grad()
def test_eight_bits_stay_close_with_their_kernels_and_without() -> None:
    exact = make().albert
    expected = exact(BATCH)
    eight = copy.deepcopy(exact)
    calibration = calibrate(eight, [BATCH])
    mean = list(exact.states(BATCH))[1].mean(0)
    torch.testing.assert_close(calibration.shifts[1, 0], mean, rtol=1e-4, atol=1e-5)

    to_int8(eight, calibration)
    plain = eight(BATCH)  # in float32, with weights that were rounded
    assert relative_difference(plain, expected) < 0.05
    pack(eight)
    packed = eight(BATCH)
    assert relative_difference(packed, expected) < 0.05
    rows = torch.tensor([60, 0, 2])
    assert relative_difference(eight(BATCH, rows), packed[rows]) < 0.01

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


class Logarithm(nn.Module):
    """A head without weights."""

    def forward(self, x: Tensor) -> Tensor:
        return x.log()


def test_a_module_without_weights_that_returns_nan_is_named() -> None:
    network = AlbertForPretraining(AlbertConfig(**SIZES))
    head = Logarithm()
    network.add_module("logarithm", head)
    refuse_non_finite(network)
    with pytest.raises(LitebertError, match="LB-472") as caught:
        head(torch.tensor([-1.0]))
    assert "Logarithm, which has no weights" in str(caught.value)
