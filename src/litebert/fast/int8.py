"""Eight-bit weights and activations, for inference on a CPU.

Weights are symmetric with one scale per row. Activations are unsigned, with a fixed scale and zero point for each of
the four products of each step, found by calibration: at each depth, shared weights get inputs of another range. In a
trained network, a few channels after a layer norm are far from zero for all tokens; so hidden states are centred before
rounding, and the product of their mean is added to the bias.

torch's (oneDNN's) kernels have no public name; only this file names them. They are tried once per process, and replaced
by public operators where they are missing or wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.config.schema import Activation
from litebert.fast.attention import attend_of
from litebert.fast.packed import FUSED_ACTIVATIONS, MakeLinear, bf16_pays, packed_linear, packed_mixing, packed_widening
from litebert.fast.steps import Linear, Mixing, Run, Step, Widening, block, blocks, cast_norm
from litebert.nn.batch import Batch
from litebert.nn.model import ACTIVATIONS, Albert, AttentionBlock, FeedForwardBlock

SITES = ("attention input", "attention result", "feed-forward input", "intermediate")
"""The inputs of the four products of a step; calibration finds a range for each, in each step."""
NUM_SHIFTED = 2
"""The inputs that are shifted by their mean: those of the two blocks."""

_OPS = torch.ops.onednn.qlinear_pointwise
_ADDED = ("add", 1.0, "none", list[float](), "")
_NUM_DRAWN = 4_096
"""Sampled numbers per batch, for each product of each step."""
_SHRINKS = [1.0 - 0.05 * number for number in range(13)]
_SMALLEST = 16_384
"""A layer outside the blocks is stored in eight bits from this many weights on."""


# Layers. As modules they compute in float32; files have `quantized` and `scale` instead of `weight`.


class Int8Linear(nn.Module):
    """A linear layer stored in eight bits."""

    quantized: Int[Tensor, "outputs inputs"]
    scale: Float[Tensor, " outputs"]
    bias: Float[Tensor, " outputs"]

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        _register(self, linear.weight)
        self.register_buffer("bias", linear.bias.detach())

    @property
    def weight(self) -> Float[Tensor, "outputs inputs"]:
        """The dequantized weight."""
        return self.quantized * self.scale[:, None]

    def forward(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """Return x W^T + b."""
        return F.linear(x, self.weight, self.bias)


class Int8Embedding(nn.Module):
    """A table of vectors stored in eight bits, with one scale per row."""

    quantized: Int[Tensor, "rows size"]
    scale: Float[Tensor, " rows"]

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        _register(self, embedding.weight)

    @property
    def weight(self) -> Float[Tensor, "rows size"]:
        """The dequantized table."""
        return self.quantized * self.scale[:, None]

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape size"]:
        """Return the rows of `ids`."""
        return self.quantized[ids] * self.scale[ids][..., None]


def _register(module: nn.Module, weight: Tensor) -> None:
    if weight.is_meta:  # shapes alone: computing on the meta device would load torch's compiler
        scale = torch.empty(len(weight), device="meta")
        quantized = torch.empty(weight.shape, dtype=torch.int8, device="meta")
    else:
        weight = weight.detach().float()
        scale = weight.abs().amax(1).clamp(min=1e-12) / 127
        quantized = (weight / scale[:, None]).round().to(torch.int8)
    module.register_buffer("quantized", quantized)
    module.register_buffer("scale", scale)


def to_int8(network: nn.Module, calibration: Int8Calibration) -> None:
    """Store the word table, the blocks and other large layers in eight bits, in place."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if not isinstance(child, nn.Linear):
                continue
            if isinstance(module, AttentionBlock | FeedForwardBlock) or child.weight.numel() >= _SMALLEST:
                setattr(module, name, Int8Linear(child))
        if isinstance(module, Albert):
            tables: nn.Module = module.embedding
            assert isinstance(tables.word, nn.Embedding), "this network is in eight bits already"
            tables.word = Int8Embedding(tables.word)
            for field, tensor in calibration._asdict().items():
                module.register_buffer(field, tensor)


def is_int8(albert: Albert) -> bool:
    """Tell whether a network is stored in eight bits."""
    return isinstance(albert.embedding.word, Int8Embedding)


# Products of bytes.


class ByteGrid(NamedTuple):
    """The 256 numbers that an activation is rounded to: scale * (byte - zero)."""

    scale: float
    zero: int

    @classmethod
    def over(cls, low: float, high: float) -> ByteGrid:
        """Return the grid that covers a range and zero.

        >>> ByteGrid.over(-1.0, 1.55)
        ByteGrid(scale=0.01, zero=100)
        """
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / 255, 1e-12)
        return cls(round(scale, 12), round(-low / scale))


def quantize(x: Float[Tensor, "rows columns"], grid: ByteGrid) -> UInt8[Tensor, "rows columns"]:
    """Round to a grid; return bytes."""
    if not _rounds_at_once():
        return torch.add(grid.zero + 0.5, x, alpha=1 / grid.scale).clamp_(0, 255).to(torch.uint8)
    quantized = torch.quantize_per_tensor(x, grid.scale, grid.zero, torch.quint8)
    # A view of its bytes: int_repr() would copy them.
    return torch.empty(0, dtype=torch.uint8).set_(quantized.untyped_storage(), 0, quantized.shape, quantized.stride())


@lru_cache
def _rounds_at_once() -> bool:
    """Tell whether torch still has quantized tensors, which are deprecated with a warning."""
    with warnings.catch_warnings(action="ignore"):
        try:
            torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
        except (RuntimeError, AttributeError):
            return False
    return True


class Product:
    """x W^T + b of bytes and eight-bit weights, fused with the operation that follows."""

    def __init__(self, quantized: Tensor, scale: Tensor) -> None:
        self._scale = scale
        self._zeros = torch.zeros(len(scale), dtype=torch.int32)
        self._blocked = torch.ops.onednn.qlinear_prepack(quantized, None)

    def __call__(
        self,
        x: Tensor,
        grid: ByteGrid,
        bias: Tensor,
        *,
        activation: Activation = "linear",
        add: Tensor | None = None,
        onto: ByteGrid | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the product, activated or added to, in `dtype` or, with `onto`, as bytes."""
        given = (x, grid.scale, grid.zero, self._blocked, self._scale, self._zeros)
        result, kind = (onto, torch.uint8) if onto is not None else (ByteGrid(1.0, 0), dtype)
        total: Tensor
        if add is None:
            name, variant = FUSED_ACTIVATIONS[_cheaper(activation)]
            total = _OPS.default(*given, bias, *result, kind, name, [], variant)
        else:
            total = _OPS.binary(*given, add, bias, *result, kind, 1.0, 0, *_ADDED)
        return total


class PlainProduct(Product):
    """The same with public operators, in float32 (slow)."""

    def __init__(self, quantized: Tensor, scale: Tensor) -> None:
        self._quantized, self._scale = quantized, scale

    def __call__(
        self,
        x: Tensor,
        grid: ByteGrid,
        bias: Tensor,
        *,
        activation: Activation = "linear",
        add: Tensor | None = None,
        onto: ByteGrid | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the product, activated or added to, in `dtype` or, with `onto`, as bytes."""
        weight = self._quantized * self._scale[:, None]
        wide: Tensor = ACTIVATIONS[_cheaper(activation)](F.linear((x.float() - grid.zero) * grid.scale, weight, bias))
        total = wide if add is None else wide + add
        return quantize(total, onto) if onto is not None else total.to(dtype)


def _cheaper(activation: Activation) -> Activation:
    """Replace GELU's tanh form by the exact one, which the kernel computes faster.

    They differ by less than 5e-4, a fraction of a step of any grid for the result.
    """
    return "gelu" if activation in ("gelu_new", "gelu_pytorch_tanh") else activation


@lru_cache
def kernels_work() -> bool:
    """Tell whether this CPU's eight-bit products exist and are right at the ends of the range.

    Products on old CPUs saturate on sums of two.
    """
    draws = torch.Generator().manual_seed(0)
    x = (torch.rand(32, 256, generator=draws) < 0.5).to(torch.uint8) * 255
    weight = torch.where(torch.rand(64, 256, generator=draws) < 0.5, 127, -127).to(torch.int8)
    grid, scale, bias = ByteGrid(0.01, 128), torch.full((64,), 0.01), torch.zeros(64)
    try:
        product, plain = Product(weight, scale), PlainProduct(weight, scale)
        return torch.allclose(product(x, grid, bias), plain(x, grid, bias), rtol=1e-3, atol=1e-2)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


# Steps on them.


class Int8Calibration(NamedTuple):
    """The input ranges, shifts and biases of each step's products.

    `shifts` are the means of the inputs of both blocks. `biases` are those of all products, end to end. They include
    the product of the mean if the input is shifted by it, otherwise a correction for rounding the weights; and the mean
    that the residual lacks.
    """

    ranges: Float[Tensor, "steps sites 2"]
    shifts: Float[Tensor, "steps shifted hidden"]
    biases: Float[Tensor, "steps outputs"]

    @classmethod
    def of(cls, albert: Albert) -> Int8Calibration:
        """Return the calibration that an eight-bit network holds."""
        return cls(*(albert.get_buffer(name) for name in cls._fields))

    @classmethod
    def without_numbers(cls, config: AlbertConfig) -> Int8Calibration:
        """Return shapes alone, to be filled from a file."""
        steps, size = config.num_steps, config.hidden_size
        with torch.device("meta"):
            return cls(
                ranges=torch.empty(steps, len(SITES), 2),
                shifts=torch.empty(steps, NUM_SHIFTED, size),
                biases=torch.empty(steps, 5 * size + config.intermediate_size),
            )

    def grids(self, step: int) -> list[ByteGrid]:
        """Return the grids of a step's products."""
        return [ByteGrid.over(*ends) for ends in self.ranges[step].tolist()]

    def bias_of(self, step: int) -> tuple[Tensor, ...]:
        """Return the biases of a step's products."""
        hidden, bias = self.shifts.shape[-1], self.biases[step]
        return torch.split(bias, [3 * hidden, hidden, len(bias) - 5 * hidden, hidden])


def int8_steps(albert: Albert) -> list[Step]:
    """Return all steps of an eight-bit network: each block is packed once, and bound to the calibration of each step.

    Between the two blocks of a step, hidden states are shifted by its second mean.
    """
    calibration, attend = Int8Calibration.of(albert), attend_of(albert.config, for_training=False)
    inner = torch.bfloat16 if bf16_pays() else torch.float32
    attention, feed_forward = list(blocks(albert, AttentionBlock)), list(blocks(albert, FeedForwardBlock))
    first = [(side_by_side(each.query, each.key, each.value), side_by_side(each.output)) for each in attention]
    second = [(side_by_side(each.intermediate), side_by_side(each.output)) for each in feed_forward]
    norms = [cast_norm(each.norm, torch.float32) for each in feed_forward]

    def mixing(step: int, i: int) -> Mixing:
        (project, output), norm = first[i], attention[i].norm
        inputs, result, _, _ = calibration.grids(step)
        project_bias, output_bias, _, _ = calibration.bias_of(step)
        mean, mean_after = calibration.shifts[step]
        norm_bias = norm.bias - mean_after
        return Mixing(
            project=lambda x, _: project(quantize(x - mean, inputs), inputs, project_bias, dtype=inner),
            attend=attend,
            output=lambda x, y: output(quantize(x.float(), result), result, output_bias, add=y),
            norm=lambda x: F.layer_norm(x, norm.normalized_shape, norm.weight, norm_bias, norm.eps),
            heads=attention[i].heads,
        )

    def widening(step: int, j: int) -> Widening:
        (intermediate, output), act = second[j], feed_forward[j].hidden_act
        _, _, inputs, wide = calibration.grids(step)
        _, _, bias, output_bias = calibration.bias_of(step)
        return Widening(
            intermediate=lambda x, _: intermediate(quantize(x, inputs), inputs, bias, activation=act, onto=wide),
            output=lambda x, y: output(x, wide, output_bias, add=y),
            norm=norms[j],
        )

    return [partial(block, mixing(step, i), widening(step, j)) for step, (i, j) in enumerate(albert.plan)]


def side_by_side(*linears: nn.Module) -> Product:
    """Join the outputs of several eight-bit layers in one product."""
    layers = [linear for linear in linears if isinstance(linear, Int8Linear)]
    quantized = torch.cat([layer.quantized for layer in layers])
    scale = torch.cat([layer.scale for layer in layers]).float()
    return (Product if kernels_work() else PlainProduct)(quantized, scale)


# Calibration, on texts like those that the model will read.


@torch.no_grad()
def calibrate(albert: Albert, batches: Iterable[Batch]) -> Int8Calibration:
    """Return the ranges, shifts and biases of each step's products, observed on batches."""
    observers = [[Observer() for _ in SITES] for _ in albert.plan]
    attention, feed_forward = list(blocks(albert, AttentionBlock)), list(blocks(albert, FeedForwardBlock))
    steps = [
        partial(
            block,
            packed_mixing(attention[i], albert, torch.float32, _observed(seen[:2])),
            packed_widening(feed_forward[j], torch.float32, _observed(seen[2:])),
        )
        for (i, j), seen in zip(albert.plan, observers, strict=True)
    ]
    run = Run(albert, steps)  # the network itself stays as it is, whatever happens
    for batch in batches:
        for _ in run(batch):
            pass
    means = [[observer.mean() for observer in seen] for seen in observers]
    biases = []
    for (i, j), (first, mixed, second, wide) in zip(albert.plan, means, strict=True):
        mixing, widening = attention[i], feed_forward[j]
        parts = [project(first) for project in (mixing.query, mixing.key, mixing.value)]
        parts += [_corrected(mixing.output, mixed), widening.intermediate(second)]
        biases.append(torch.cat([*parts, _corrected(widening.output, wide) + second]))
    ranges = [
        [seen[0].range(first), seen[1].range(0.0), seen[2].range(second), seen[3].range(0.0)]
        for seen, (first, _, second, _) in zip(observers, means, strict=True)
    ]
    shifts = torch.stack([torch.stack([first, second]) for first, _, second, _ in means])
    return Int8Calibration(torch.tensor(ranges), shifts, torch.stack(biases))


def _corrected(linear: nn.Linear, mean: Tensor) -> Tensor:
    """Return the bias, corrected for the effect of rounding the weights on the mean product."""
    lost: Tensor = linear(mean) - Int8Linear(linear)(mean)
    return linear.bias + lost


def _observed(observers: list[Observer]) -> MakeLinear:
    """Return a factory of linear layers whose inputs are observed, one observer per layer."""
    remaining = iter(observers)

    def make(weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: Activation) -> Linear:
        observer, linear = next(remaining), packed_linear(weight, bias, dtype, activation)

        def seen(x: Tensor, y: Tensor | None) -> Tensor:
            observer.see(x)
            return linear(x, y)

        return seen

    return make


class Observer:
    """Observes the inputs of a product: extremes and mean of each channel, and some rows."""

    def __init__(self) -> None:
        self._low, self._high = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        self._sum, self._num_rows, self._rows = torch.zeros(()), 0, list[Tensor]()
        self._draws = torch.Generator().manual_seed(0)

    def see(self, x: Tensor) -> None:
        """Observe an input (rows, channels)."""
        x = x.float()
        self._low, self._high = self._low.minimum(x.amin(0)), self._high.maximum(x.amax(0))
        self._sum, self._num_rows = self._sum + x.sum(0), self._num_rows + len(x)
        size = (max(1, _NUM_DRAWN // x.shape[1]),)
        self._rows.append(x[torch.randint(len(x), size, generator=self._draws)])

    def mean(self) -> Tensor:
        """Return the mean of each channel."""
        return self._sum / self._num_rows

    def range(self, shift: Tensor | float) -> tuple[float, float]:
        """Return the range with the least rounding error, among shrunken ranges of the extremes.

        Clipping a rare extreme costs less than a coarser grid for everything else.
        """
        low, high = float((self._low - shift).min()), float((self._high - shift).max())
        sample = torch.cat(self._rows) - shift
        ranges = [(min(low, 0.0) * s, max(high, 0.0) * s) for s in _SHRINKS]

        def error(ends: tuple[float, float]) -> float:
            grid = ByteGrid.over(*ends)
            rounded = torch.fake_quantize_per_tensor_affine(sample, grid.scale, grid.zero, 0, 255)
            return float((rounded - sample).square().mean())

        return min(ranges, key=error)
