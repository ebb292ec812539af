"""Compute the steps of a network with the engine: for training, or packed for inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TypeAlias, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import Backend
from litebert.errors import no_such_name
from litebert.fast.attention import faster, full
from litebert.fast.int8 import Int8Calibration, calibration_of, int8_attention, int8_feed_forward
from litebert.fast.packed import packed_attention, packed_feed_forward
from litebert.fast.precision import cast_linear, cast_norm
from litebert.fast.rows import linear_on_filled, on_batch
from litebert.nn.block import AttentionBlock, AttentionPieces, FeedForwardBlock, Half, Steps, feed_forward_block
from litebert.nn.heads import AlbertForPretraining, Network
from litebert.nn.model import Albert

MakeSteps: TypeAlias = Callable[[Albert], Steps]
BlockT = TypeVar("BlockT", AttentionBlock, FeedForwardBlock)


def blocks(network: nn.Module, kind: type[BlockT]) -> Iterator[BlockT]:
    """Iterate over the blocks of one kind, in the order that the plan numbers them."""
    return (module for module in network.modules() if isinstance(module, kind))


def accelerate(network: Network) -> None:
    """Let a network use the engine's kernels from now on; the results are the same, but faster.

    Weights are joined and cast once for all steps that share them, rows are filled up, and
    attention uses the kernel that suits the device and the lengths.
    """
    network.albert.make_steps = training_steps
    if isinstance(network, AlbertForPretraining):
        network.masked_lm.linear = linear_on_filled


def checkpoint_gradients(albert: Albert) -> None:
    """Keep only each block's input for the backward pass, and recompute the rest there."""
    albert.apply_block = partial(checkpoint, use_reentrant=False)


def training_steps(albert: Albert) -> Steps:
    """Return the functions of all steps, with dropout in training and with gradients."""
    return _in_order(
        albert,
        [_attention(block, albert) for block in blocks(albert, AttentionBlock)],
        [_feed_forward(block, albert) for block in blocks(albert, FeedForwardBlock)],
    )


def pack(albert: Albert) -> None:
    """Pack the current weights for inference, in eight bits if they are stored so.

    Training and gradients use the weights themselves; if these change, packed ones are dropped.
    """
    calibration = calibration_of(albert)
    steps = _packed_steps(albert) if calibration is None else _int8_steps(albert, calibration)
    albert.make_steps = _Packed(albert, steps)


def use_backend(albert: Albert, backend: str) -> None:
    """Compute single short texts with onnxruntime; with "auto", where it is installed and faster.

    A packed network in fp32 gets a graph per distinct step. A network in bf16, in eight bits or
    with unsupported operators stays unchanged.

    Raises:
        LitebertError: LB-305, onnxruntime is not installed; LB-975, no backend has this name.
    """
    if backend not in get_args(Backend):
        raise no_such_name("LB-975", "there is no such backend", str(backend), get_args(Backend), next='backend="auto"')
    is_installed = all(find_spec(package) for package in ("onnx", "onnxruntime"))
    if backend == "torch" or (backend == "auto" and not is_installed):
        return
    from litebert.fast.graphs import FUSED, alone_by, compiled_step, is_faster

    packed = albert.make_steps
    if not isinstance(packed, _Packed) or calibration_of(albert) is not None:
        return
    config, is_float = albert.config, albert.dtype == torch.float32
    has_operators = config.hidden_act in FUSED and config.attention == "full"
    if not (is_float and has_operators) or albert.embedding.word.weight.device.type != "cpu":
        return
    attention, feed_forward = blocks(albert, AttentionBlock), blocks(albert, FeedForwardBlock)
    both = (list(attention), list(feed_forward))
    graphs = {step: compiled_step(both[0][step[0]], both[1][step[1]]) for step in set(albert.plan)}
    first = graphs[albert.plan[0]]
    if backend == "auto" and not is_faster(first, *packed.steps[0], hidden_size=config.hidden_size):
        return
    pairs = zip(albert.plan, packed.steps, strict=True)
    packed.steps = [alone_by(graphs[step], *halves) for step, halves in pairs]


def is_packed(albert: Albert) -> bool:
    """Tell whether the weights, as they are now, are packed."""
    return isinstance(albert.make_steps, _Packed) and albert.make_steps.is_current(albert)


class _Packed:
    """Packed steps, and the function that makes other steps where these cannot be used."""

    def __init__(self, albert: Albert, steps: Steps) -> None:
        make = albert.make_steps
        self._otherwise: MakeSteps = make._otherwise if isinstance(make, _Packed) else make
        self.steps, self._stamps = steps, _stamps(albert)

    def __call__(self, albert: Albert) -> Steps:
        """Return the packed steps, or others for gradients; drop them if weights have changed."""
        if not self.is_current(albert):
            albert.make_steps = self._otherwise
        elif not torch.is_grad_enabled():
            return self.steps
        return self._otherwise(albert)

    def is_current(self, albert: Albert) -> bool:
        """Tell whether the weights are those that were packed."""
        return not albert.training and _stamps(albert) == self._stamps


def _stamps(albert: Albert) -> list[tuple[int, int]]:
    """Return the address of each weight and the number of writes to it."""
    return [
        (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        for module in albert.modules()
        for weight in module._parameters.values()
        if weight is not None
    ]


def _attention(block: AttentionBlock, albert: Albert) -> Half:
    output, dtype = block.output, albert.dtype
    pieces = AttentionPieces(
        project=cast_linear(*block.projection(), dtype),
        output=cast_linear(output.weight, output.bias, dtype, output.dropout_prob * block.training),
        norm=cast_norm(block.norm, dtype),
        heads=block.heads,
    )
    attend = faster(block.attend, full)
    return on_batch(pieces, attend, block.dropout_prob * block.training)


def _feed_forward(block: FeedForwardBlock, albert: Albert) -> Half:
    inner, outer, dtype = block.intermediate, block.output, albert.dtype
    widen = cast_linear(inner.weight, inner.bias, dtype)
    output = cast_linear(outer.weight, outer.bias, dtype, outer.dropout_prob * block.training)
    norm = cast_norm(block.norm, dtype)

    def activated(x: Tensor, _: Tensor | None) -> Tensor:
        return block.activation(widen(x, None))

    return lambda x, _: feed_forward_block(x, activated, output, norm)


def _packed_steps(albert: Albert) -> Steps:
    return _in_order(
        albert,
        [packed_attention(block, albert.dtype) for block in blocks(albert, AttentionBlock)],
        [packed_feed_forward(block, albert.dtype) for block in blocks(albert, FeedForwardBlock)],
    )


def _int8_steps(albert: Albert, calibration: Int8Calibration) -> Steps:
    """Bind the blocks, which are packed once, to the calibration of each step."""
    attention = [int8_attention(block, calibration) for block in blocks(albert, AttentionBlock)]
    feed_forward = [int8_feed_forward(block, calibration) for block in blocks(albert, FeedForwardBlock)]
    return [(attention[step.attention](i), feed_forward[step.feed_forward](i)) for i, step in enumerate(albert.plan)]


def _in_order(albert: Albert, attention: Sequence[Half], feed_forward: Sequence[Half]) -> Steps:
    """Return the functions of every step of the plan."""
    return [(attention[step.attention], feed_forward[step.feed_forward]) for step in albert.plan]
