"""Eight bits stay close to float32, and their kernels say what public operators say."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch

from litebert.fast import calibrate, int8, pack, to_int8
from litebert.fast.int8 import Int8Calibration
from litebert.nn import AlbertForPretraining, Batch
from litebert.nn.model import AttentionBlock, FeedForwardBlock

Make = Callable[..., AlbertForPretraining]


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@torch.no_grad()
def test_eight_bits_stay_close_with_their_kernels_and_without(make: Make, batch: Batch) -> None:
    exact = make().albert
    eight = copy.deepcopy(exact)
    to_int8(eight, calibrate(eight, [batch]))
    plain = eight(batch)  # in float32, with weights that were rounded
    pack(eight)
    found = eight(batch)
    assert _difference(plain, exact(batch)) < 0.05
    assert _difference(found, exact(batch)) < 0.05
    rows = torch.tensor([60, 0, 2])
    assert _difference(eight(batch, rows), found[rows]) < 0.01
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "kernels_work", lambda: False)
        pack(eight)
    assert _difference(eight(batch), plain) < 1e-5  # without these kernels, the rounded weights in float32


@torch.no_grad()
def test_channels_far_from_zero_cost_eight_bits_little(make: Make, batch: Batch) -> None:
    network = make(initializer_range=0.02).albert
    for block in network.modules():
        if isinstance(block, AttentionBlock | FeedForwardBlock):
            block.norm.bias[3] = -200.0
        if isinstance(block, torch.nn.Linear):
            block.weight *= 2
    exact, found = network(batch), calibrate(network, [batch])
    ends = [float(exact.min()), float(exact.max())]
    biases = []
    for mixing, widening in zip(network.attention, network.feed_forward, strict=True):
        biases += [mixing.query.bias, mixing.key.bias, mixing.value.bias, mixing.output.bias]
        biases += [widening.intermediate.bias, widening.output.bias]
    biases = torch.cat(biases)
    unshifted = Int8Calibration(found.ranges.clone(), torch.zeros_like(found.shifts), biases.expand_as(found.biases))
    unshifted.ranges[:, [0, 2]] = torch.tensor(ends)
    errors = []
    for calibration in (found, unshifted):
        eight = copy.deepcopy(network)
        to_int8(eight, calibration)
        pack(eight)
        errors.append(float((eight(batch) - exact).norm()))
    assert errors[0] < 0.5 * errors[1], errors


def test_a_calibration_that_fails_leaves_the_network_as_it_was(make: Make, batch: Batch) -> None:
    network = make().albert
    expected = network(batch)

    def batches() -> Iterator[Batch]:
        yield batch
        raise OSError("the texts are gone")

    with pytest.raises(OSError, match="gone"):
        calibrate(network, batches())
    assert torch.equal(network(batch), expected)
