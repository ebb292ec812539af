"""Eight-bit weights and activations, for inference on a CPU.

Weights are symmetric with one scale per row. Activations are unsigned, with a fixed
scale and zero point for each of the four products of each step, found by calibration:
at each depth, shared weights get inputs of a different range. In a trained network, a
few channels after a layer norm are far from zero for all tokens. So hidden states are
centred before rounding, and the product of the weights with their mean is added to the
bias.

torch's (oneDNN's) kernels have no public name; only this file names them. They are
tried once per process; if they are missing or wrong, the rounded weights are used in
float32.
"""

import warnings
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Activation, AlbertConfig
from litebert.fast import steps
from litebert.fast.attention import Layout, attend_of
from litebert.fast.linear import (
    FUSED_ACTIVATIONS,
    Linear,
    Norm,
    norm_of,
    packed_linear,
    packing_pays,
)
from litebert.nn import Albert, AttentionBlock, Batch, FeedForwardBlock

# The inputs of the four products of a step; calibration finds a range for each, in each
# step.
SITES = ("attention input", "attention result", "feed-forward input", "intermediate")
NUM_SHIFTED = 2  # of these are shifted by their mean: the inputs of the two blocks

_ADDED = ("add", 1.0, "none", list[float](), "")
_NUM_DRAWN = 4_096  # sampled numbers per batch, for each product of each step
# the factors by which the range is tried, from 1 to 0.4
_SHRINKS = [1.0 - 0.05 * number for number in range(13)]
# a layer outside the blocks is stored in eight bits from this many weights on
_SMALLEST = 16_384


# Layers. The modules compute in float32; files have `quantized` and `scale` instead of
# `weight`.


class Int8Table(nn.Module):
    """A matrix stored in eight bits, with one scale per row."""

    quantized: Int[Tensor, "rows size"]
    scale: Float[Tensor, " rows"]

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        # only shapes: computing on the meta device would load torch's compiler
        if weight.is_meta:
            scale = weight.new_empty(len(weight))
            quantized = torch.empty_like(weight, dtype=torch.int8)
        else:
            weight = weight.detach().float()
            # (rows,): the largest weight of a row becomes 127
            scale = weight.abs().amax(1).clamp(min=1e-12) / 127
            quantized = (weight / scale[:, None]).round().to(torch.int8)
        self.register_buffer("quantized", quantized)
        self.register_buffer("scale", scale)

    @property
    def weight(self) -> Float[Tensor, "rows size"]:
        return self.quantized * self.scale[:, None]


class Int8Linear(Int8Table):
    """A linear layer stored in eight bits."""

    bias: Float[Tensor, " rows"]

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.weight)
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        return F.linear(x, self.weight, self.bias)


class Int8Embedding(Int8Table):
    """A table of vectors stored in eight bits."""

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape size"]:
        return self.quantized[ids] * self.scale[ids][..., None]


class Int8Calibration(NamedTuple):
    """The input ranges, shifts and biases of each step's products, found by
    `calibrate`.
    """

    ranges: Float[Tensor, "steps sites 2"]
    # the means of the inputs of both blocks
    shifts: Float[Tensor, "steps shifted hidden"]
    # Of all products, end to end. A bias includes the product of the mean if the input
    # is shifted by it, otherwise a correction for rounding the weights; the last bias
    # also includes the mean that the residual lacks.
    biases: Float[Tensor, "steps outputs"]

    @classmethod
    def without_numbers(cls, config: AlbertConfig) -> "Int8Calibration":
        """Return tensors of these shapes without values, to be filled from a file."""
        size = config.hidden_size
        outputs = 5 * config.hidden_size + config.intermediate_size
        shapes = ((len(SITES), 2), (NUM_SHIFTED, size), (outputs,))
        return cls(*(torch.empty(config.num_steps, *shape) for shape in shapes))


def to_int8(network: nn.Module, calibration: Int8Calibration) -> None:
    """Store the word table, the blocks and other large layers in eight bits, in
    place.
    """
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            is_in_block = isinstance(module, AttentionBlock | FeedForwardBlock)
            if isinstance(child, nn.Linear) and (
                is_in_block or child.weight.numel() >= _SMALLEST
            ):
                setattr(module, name, Int8Linear(child))
        if isinstance(module, Albert):
            tables: nn.Module = module.embedding
            assert isinstance(tables.word, nn.Embedding), (
                "this network is in eight bits already"
            )
            tables.word = Int8Embedding(tables.word.weight)
            for field, tensor in calibration._asdict().items():
                module.register_buffer(field, tensor)


def is_int8(albert: Albert) -> bool:
    """Return whether a network is stored in eight bits."""
    return isinstance(albert.embedding.word, Int8Embedding)


# Products of bytes.


class ByteGrid(NamedTuple):
    """The 256 numbers that an activation is rounded to: scale * (byte - zero)."""

    scale: float
    zero: int

    @classmethod
    def over(cls, low: float, high: float) -> "ByteGrid":
        """Return the grid that covers a range and zero.

        >>> ByteGrid.over(-1.0, 1.55)
        ByteGrid(scale=0.01, zero=100)
        """
        low = min(low, 0.0)
        high = max(high, 0.0)
        scale = max((high - low) / 255, 1e-12)
        return cls(round(scale, 12), round(-low / scale))


def quantize(
    x: Float[Tensor, "rows columns"], grid: ByteGrid
) -> UInt8[Tensor, "rows columns"]:
    """Round to a grid; return bytes."""
    quantized = torch.quantize_per_tensor(x, grid.scale, grid.zero, torch.quint8)
    # A view of its bytes: int_repr() would copy them.
    return torch.empty(0, dtype=torch.uint8).set_(
        quantized.untyped_storage(), 0, quantized.shape, quantized.stride()
    )


class Product:
    """x W^T + b from bytes and the concatenated eight-bit weights of layers, fused with
    the operation that follows.
    """

    def __init__(self, *layers: nn.Module) -> None:
        tables = [layer for layer in layers if isinstance(layer, Int8Linear)]
        scale = torch.cat([table.scale for table in tables]).float()  # (outputs,)
        quantized = torch.cat([table.quantized for table in tables])
        weight = torch.ops.onednn.qlinear_prepack(quantized, None)
        self._weight = (weight, scale, torch.zeros(len(scale), dtype=torch.int32))
        self._multiply = torch.ops.onednn.qlinear_pointwise

    def __call__(
        self,
        x: UInt8[Tensor, "rows inputs"],
        grid: ByteGrid,
        bias: Tensor,
        *,
        activation: Activation = "linear",
        add: Tensor | None = None,
        onto: ByteGrid | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the product, activated or added to `add`, in `dtype` or, with `onto`,
        as bytes of that grid.
        """
        # scale, zero point and dtype
        result = (1.0, 0, dtype) if onto is None else (*onto, torch.uint8)
        total: Tensor
        if add is not None:
            total = self._multiply.binary(
                x, *grid, *self._weight, add, bias, *result, 1.0, 0, *_ADDED
            )
            return total
        # GELU's exact form is faster than its tanh form; they differ by less than 5e-4,
        # a fraction of any grid's step.
        name, variant = FUSED_ACTIVATIONS[activation]
        variant = "none" if name == "gelu" else variant
        total = self._multiply.default(
            x, *grid, *self._weight, bias, *result, name, [], variant
        )
        return total


@lru_cache
def kernels_work() -> bool:
    """Return whether this CPU's eight-bit products exist and are right at extreme
    values, where old CPUs saturate.
    """
    draws = torch.Generator().manual_seed(0)
    grid = ByteGrid(0.01, 128)
    is_high = torch.rand(32, 256, generator=draws) < 0.5
    x = torch.where(is_high, 1.27, -1.28)  # (rows, inputs), the ends of the grid
    is_positive = torch.rand(64, 256, generator=draws) < 0.5
    layer = Int8Linear(nn.Linear(256, 64, device="meta"))
    layer.quantized = torch.where(is_positive, 127, -127).to(torch.int8)
    layer.scale = torch.full((64,), 0.01)
    try:
        # quantized tensors are deprecated
        with warnings.catch_warnings(action="ignore"):
            rounded = quantize(x, grid)
        product = Product(layer)(rounded, grid, torch.zeros(64))
    except (AttributeError, RuntimeError):
        # torch has no kernel of this name, or none for this CPU
        return False
    if not torch.equal(rounded, is_high.to(torch.uint8) * 255):
        return False
    expected = F.linear(x, layer.weight)
    return torch.allclose(product, expected, rtol=1e-3, atol=1e-2)


class Sizes(NamedTuple):
    """The outputs of the four products of a step, whose biases lie end to end."""

    project: int  # query, key and value: 3 H
    mix: int  # H
    widen: int  # the intermediate size
    narrow: int  # H


class BlockProducts(NamedTuple):
    """The packed products of an attention and of a feed-forward block, shared by all
    steps that apply them.
    """

    project: Product
    mix: Product
    widen: Product
    narrow: Product


class Int8Layers:
    """The layers of one step: the packed products of its blocks, with the grids, biases
    and means that calibration found for this step.

    Hidden states are shifted by a mean before each of the two blocks, so that the
    products read centred inputs; the biases of the products make up for it.
    """

    def __init__(
        self,
        products: BlockProducts,
        ranges: Float[Tensor, "sites 2"],
        shifts: Float[Tensor, "shifted hidden"],
        biases: Float[Tensor, " outputs"],
        *,
        sizes: Sizes,
        activation: Activation,
        inner: torch.dtype,
    ) -> None:
        self.products = products
        grids = [ByteGrid.over(low, high) for low, high in ranges.tolist()]
        self.of_input, self.of_mixed, self.of_middle, self.of_wide = grids
        parts = torch.split(biases, list(sizes))
        self.project_bias, self.mix_bias, self.wide_bias, self.narrow_bias = parts
        self.mean, self.middle_mean = shifts  # (hidden,) each
        self.activation: Activation = activation
        self.inner = inner  # the dtype of query, key and value

    def project(self, x: Tensor, _: Tensor | None) -> Tensor:
        """Return query, key and value, (rows, 3 H)."""
        centred = quantize(x - self.mean, self.of_input)
        return self.products.project(
            centred, self.of_input, self.project_bias, dtype=self.inner
        )

    def mix(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """Return the output layer of attention, plus the residual, (rows, H)."""
        rounded = quantize(x.float(), self.of_mixed)
        return self.products.mix(rounded, self.of_mixed, self.mix_bias, add=residual)

    def middle_norm(self, norm: nn.LayerNorm) -> Norm:
        """Return the layer norm between the blocks, which also subtracts the mean."""
        shifted = norm.bias - self.middle_mean

        def apply(x: Tensor) -> Tensor:
            return F.layer_norm(
                x, norm.normalized_shape, norm.weight, shifted, norm.eps
            )

        return apply

    def widen(self, x: Tensor, _: Tensor | None) -> Tensor:
        """Return the activated intermediate layer as bytes, (rows, intermediate)."""
        return self.products.widen(
            quantize(x, self.of_middle),
            self.of_middle,
            self.wide_bias,
            activation=self.activation,
            onto=self.of_wide,
        )

    def narrow(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """Return the output layer of the feed-forward block, plus the residual, which
        lacks the mean that the bias has, (rows, H).
        """
        return self.products.narrow(x, self.of_wide, self.narrow_bias, add=residual)


def int8_steps(albert: Albert) -> list[steps.Step]:
    """Return all steps of an eight-bit network: each block is packed once, and bound to
    the calibration of each step.
    """
    config = albert.config
    hidden = config.hidden_size
    sizes = Sizes(3 * hidden, hidden, config.intermediate_size, hidden)
    ranges = albert.get_buffer("ranges")  # (steps, sites, 2)
    shifts = albert.get_buffer("shifts")  # (steps, shifted, hidden)
    biases = albert.get_buffer("biases")  # (steps, outputs)
    attend = attend_of(config, in_rectangles=True)
    inner = torch.bfloat16 if packing_pays(torch.bfloat16) else torch.float32
    projects = [Product(x.query, x.key, x.value) for x in albert.attention]
    mixes = [Product(block.output) for block in albert.attention]
    widens = [Product(block.intermediate) for block in albert.feed_forward]
    narrows = [Product(block.output) for block in albert.feed_forward]

    made = list[steps.Step]()
    for number, (i, j) in enumerate(albert.plan):
        attention = albert.attention[i]
        feed_forward = albert.feed_forward[j]
        layers = Int8Layers(
            BlockProducts(projects[i], mixes[i], widens[j], narrows[j]),
            ranges[number],
            shifts[number],
            biases[number],
            sizes=sizes,
            activation=feed_forward.hidden_act,
            inner=inner,
        )
        of_attention = steps.AttentionLayers(
            project=layers.project,
            attend=attend,
            output=layers.mix,
            norm=layers.middle_norm(attention.norm),
            heads=attention.heads,
        )
        of_feed_forward = steps.FeedForwardLayers(
            intermediate=layers.widen,
            output=layers.narrow,
            norm=norm_of(feed_forward.norm, torch.float32),
        )
        step = partial(
            steps.block, of_attention, of_feed_forward, finish=steps.finish_step
        )
        made.append(step)
    return made


# Calibration, on texts like those that the model will read


@torch.no_grad()
def calibrate(albert: Albert, batches: Iterable[Batch]) -> Int8Calibration:
    """Return the ranges, shifts and biases of each step's products, observed on
    batches.
    """
    observers_by_step = _observe(albert, batches)
    ranges = []
    shifts = []
    biases = []
    for (i, j), observers in zip(albert.plan, observers_by_step, strict=True):
        attention = albert.attention[i]
        feed_forward = albert.feed_forward[j]
        # the mean of each channel, over all tokens
        means = [observer.total / observer.num_rows for observer in observers]
        first, mixed, second, wide = means
        step_biases = [
            attention.query(first),
            attention.key(first),
            attention.value(first),
            _correct_bias(attention.output, mixed),
            feed_forward.intermediate(second),
            # the residual lacks this mean
            _correct_bias(feed_forward.output, wide) + second,
        ]
        biases.append(torch.cat(step_biases))  # (5 hidden + intermediate,)
        shifts.append(torch.stack([first, second]))  # (2, hidden)
        # only the inputs of the two blocks are shifted
        centers: tuple[Tensor | float, ...] = (first, 0.0, second, 0.0)
        pairs = zip(observers, centers, strict=True)
        ranges.append([observer.range(center) for observer, center in pairs])
    return Int8Calibration(
        torch.tensor(ranges), torch.stack(shifts), torch.stack(biases)
    )


def _observe(albert: Albert, batches: Iterable[Batch]) -> list[list["Observer"]]:
    """Return the observers of each step, in the order of SITES, after all batches; the
    network itself is never modified.
    """
    recorder = Recorder()
    observed_steps = list[steps.Step]()
    # A shared block is made for each step anew, so that every step has its observers.
    for blocks in albert.plan:
        observed_steps += steps.make_steps(albert, recorder.make, plan=[blocks])
    for batch in batches:
        recorder.num_tokens = len(batch.ids)
        layout = Layout(batch)
        hidden = albert.embedding(batch).to(albert.dtype)
        for step in observed_steps:
            hidden = step(hidden, layout)
    count = len(SITES)
    starts = range(0, len(recorder.observers), count)
    return [recorder.observers[start : start + count] for start in starts]


class Recorder:
    """Makes linear layers, each with an observer of its inputs."""

    def __init__(self) -> None:
        # A step makes its products in the order of SITES.
        self.observers = list[Observer]()
        self.num_tokens = 0  # of the batch that is computed

    def make(
        self,
        weight: Tensor,
        bias: Tensor,
        dtype: torch.dtype,
        activation: Activation,
        _dropout_prob: float,
    ) -> Linear:
        """Return the layer of `packed_linear`, observed."""
        observer = Observer()
        self.observers.append(observer)
        linear = packed_linear(weight, bias, dtype, activation)

        def apply(x: Tensor, residual: Tensor | None) -> Tensor:
            observer.see(x[: self.num_tokens])  # the rows after these are padding
            return linear(x, residual)

        return apply


def _correct_bias(linear: nn.Linear, mean: Tensor) -> Tensor:
    """Return the bias, corrected for the effect of rounding the weights on the mean
    product.
    """
    lost: Tensor = linear(mean) - Int8Linear(linear)(mean)
    return linear.bias + lost


class Observer:
    """Observes the inputs of a product: extremes and sum of each channel, the number of
    rows, and a sample of them.
    """

    def __init__(self) -> None:
        self._low = torch.tensor(torch.inf)
        self._high = torch.tensor(-torch.inf)
        self.total = torch.zeros(())
        self.num_rows = 0
        self._rows = list[Tensor]()
        self._draws = torch.Generator().manual_seed(0)

    def see(self, x: Tensor) -> None:
        """Observe an input (rows, channels)."""
        self._low = self._low.minimum(x.amin(0))  # (channels,)
        self._high = self._high.maximum(x.amax(0))
        self.total = self.total + x.sum(0)
        self.num_rows += len(x)
        num_drawn = max(1, _NUM_DRAWN // x.shape[1])
        numbers = torch.randint(len(x), (num_drawn,), generator=self._draws)
        self._rows.append(x[numbers])

    def range(self, shift: Tensor | float) -> tuple[float, float]:
        """Return the range with the least rounding error, among shrunken versions of
        the range between the extremes.

        Clipping a rare extreme costs less than a coarser grid for everything else.
        """
        low = min(float((self._low - shift).min()), 0.0)
        high = max(float((self._high - shift).max()), 0.0)
        sample = torch.cat(self._rows) - shift  # (sampled rows, channels)
        errors = [_rounding_error(sample, low * s, high * s) for s in _SHRINKS]
        best = _SHRINKS[errors.index(min(errors))]
        return low * best, high * best


def _rounding_error(x: Tensor, low: float, high: float) -> float:
    """Return the mean square of what rounding to the grid of a range changes."""
    grid = ByteGrid.over(low, high)
    rounded = torch.fake_quantize_per_tensor_affine(x, grid.scale, grid.zero, 0, 255)
    return float((rounded - x).square().mean())
