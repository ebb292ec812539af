"""Eight-bit weights and activations, for inference on a CPU.

Weights are symmetric with one scale per row. Activations are unsigned, with a fixed
scale and zero point for each of the four products of each step, found by calibration:
at each depth, shared weights get inputs of a different range. In a trained network, a
few channels after a layer norm are far from zero for all tokens. So hidden states are
centered before rounding, and the product of the weights with their mean is added to the
bias.

torch's (oneDNN's) kernels have no public name; only this file names them. They are
tried once per process; if they are missing or wrong, the rounded weights are used in
float32.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Activation, AlbertConfig
from litebert.fast import steps
from litebert.fast.attention import attend_of
from litebert.fast.linear import FUSED_ACTIVATIONS, Norm, norm_of, packing_pays
from litebert.nn import Albert, AttentionBlock, FeedForwardBlock

# A layer outside the blocks is stored in eight bits from this many weights on: in a
# smaller one, there is little to save.
_SMALLEST = 16_384


# ---- stored weights ------------------------------------------------------------------
#
# The modules compute in float32; files have `quantized` and `scale` instead of `weight`.


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
            exact = weight.detach().float()
            # (rows,): the largest weight of a row becomes 127
            scale = exact.abs().amax(1).clamp(min=1e-12) / 127
            quantized = (exact / scale[:, None]).round().to(torch.int8)
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


Item = TypeVar("Item")


@dataclass(frozen=True)
class PerProduct(Generic[Item]):
    """What each of the four products of a step has: its grid, its bias, its size, ..."""

    project: Item  # hidden states to query, key and value at once
    mix: Item  # what attention mixed, to hidden states
    widen: Item  # hidden states to the intermediate layer
    narrow: Item  # the intermediate layer to hidden states

    def __iter__(self) -> Iterator[Item]:
        """Yield the four in the order in which a step computes its products."""
        return iter((self.project, self.mix, self.widen, self.narrow))


NUM_PRODUCTS = 4
NUM_SHIFTED = 2  # inputs that are shifted by their mean: those of `project` and `widen`


def output_sizes(config: AlbertConfig) -> PerProduct[int]:
    """Return how many outputs each product has, in the order of their biases."""
    hidden = config.hidden_size
    return PerProduct(3 * hidden, hidden, config.intermediate_size, hidden)


class Int8Calibration(NamedTuple):
    """The input ranges, shifts and biases of each step's products, found by
    `calibrate`.
    """

    # the lowest and the highest input of each product
    ranges: Float[Tensor, "steps products 2"]
    # the means of the inputs of both blocks
    shifts: Float[Tensor, "steps shifted hidden"]
    # Of all products, end to end. A bias includes the product of the mean if the input
    # is shifted by it, otherwise a correction for rounding the weights; the last bias
    # also includes the mean that the residual lacks.
    biases: Float[Tensor, "steps outputs"]

    @classmethod
    def without_numbers(cls, config: AlbertConfig) -> "Int8Calibration":
        """Return tensors of these shapes without values, to be filled from a file."""
        steps = config.num_steps
        return cls(
            ranges=torch.empty(steps, NUM_PRODUCTS, 2),
            shifts=torch.empty(steps, NUM_SHIFTED, config.hidden_size),
            biases=torch.empty(steps, sum(output_sizes(config))),
        )


def to_int8(network: nn.Module, calibration: Int8Calibration) -> None:
    """Store the word table, the blocks and other large layers in eight bits, in
    place.
    """
    # lists, because the tree of modules changes while it is walked
    for module in list(network.modules()):
        is_block = isinstance(module, AttentionBlock | FeedForwardBlock)
        for name, child in list(module.named_children()):
            if not isinstance(child, nn.Linear):
                continue
            if is_block or child.weight.numel() >= _SMALLEST:
                setattr(module, name, Int8Linear(child))
        if isinstance(module, Albert):
            tables: nn.Module = module.embedding
            assert isinstance(tables.word, nn.Embedding), (
                "this network is in eight bits already"
            )
            tables.word = Int8Embedding(tables.word.weight)
            # buffers, so that they are saved and loaded with the weights
            for field, tensor in calibration._asdict().items():
                module.register_buffer(field, tensor)


def is_int8(albert: Albert) -> bool:
    """Return whether a network is stored in eight bits."""
    return isinstance(albert.embedding.word, Int8Embedding)


# ---- products of bytes ---------------------------------------------------------------


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
        lowest = min(low, 0.0)
        highest = max(high, 0.0)
        scale = max((highest - lowest) / 255, 1e-12)
        return cls(round(scale, 12), round(-lowest / scale))


def quantize(
    x: Float[Tensor, "rows columns"], grid: ByteGrid
) -> UInt8[Tensor, "rows columns"]:
    """Round to a grid; return bytes."""
    quantized = torch.quantize_per_tensor(x, grid.scale, grid.zero, torch.quint8)
    # A view of its bytes: int_repr() would copy them.
    return torch.empty(0, dtype=torch.uint8).set_(
        quantized.untyped_storage(), 0, quantized.shape, quantized.stride()
    )


# What the kernels call the sum of a product and a tensor: the name of the operation and
# the factor of the tensor, then no activation, which has no arguments and no variant.
_ADDED = ("add", 1.0, "none", list[float](), "")


class Product:
    """x W^T + b from bytes and the concatenated eight-bit weights of layers, fused with
    the operation that follows.
    """

    def __init__(self, *layers: nn.Module) -> None:
        tables = [layer for layer in layers if isinstance(layer, Int8Linear)]
        # Rows are outputs, so layers with the same inputs are joined along them.
        quantized = torch.cat([table.quantized for table in tables])
        scale = torch.cat([table.scale for table in tables]).float()  # (outputs,)
        # the kernels' layout, which belongs to this CPU and is never stored
        packed = torch.ops.onednn.qlinear_prepack(quantized, None)
        # Weights are symmetric: each row has a scale, and its zero point is 0.
        zeros = torch.zeros(len(scale), dtype=torch.int32)
        self._weight = (packed, scale, zeros)
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
        # scale, zero point and dtype of the result
        result = (1.0, 0, dtype)
        if onto is not None:
            result = (onto.scale, onto.zero, torch.uint8)
        total: Tensor
        if add is not None:
            # 1.0 and 0: the scale and the zero point of `add`, which is not in bytes
            total = self._multiply.binary(
                x, *grid, *self._weight, add, bias, *result, 1.0, 0, *_ADDED
            )
            return total
        name, variant = FUSED_ACTIVATIONS[activation]
        if name == "gelu":
            # GELU's erf form is faster than its tanh form; they differ by less than 5e-4
            # (docs/speed.md).
            variant = "none"
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


# ---- the steps -----------------------------------------------------------------------


class Int8Step(NamedTuple):
    """What calibration found for one step.

    Hidden states are shifted by a mean before each of the two blocks, so that the
    products read centered inputs; the biases of the products make up for it.
    """

    grids: PerProduct[ByteGrid]  # of the inputs
    biases: PerProduct[Tensor]  # (outputs,) each
    mean: Float[Tensor, " hidden"]  # of the inputs of the attention block
    middle_mean: Float[Tensor, " hidden"]  # of those of the feed-forward block


def calibrated_steps(albert: Albert) -> list[Int8Step]:
    """Return what calibration found for each step of an eight-bit network."""
    ranges = albert.get_buffer("ranges")  # (steps, products, 2)
    shifts = albert.get_buffer("shifts")  # (steps, shifted, hidden)
    biases = albert.get_buffer("biases")  # (steps, outputs)
    sizes = list(output_sizes(albert.config))
    calibrated = list[Int8Step]()
    for number in range(len(albert.plan)):
        grids = [ByteGrid.over(low, high) for low, high in ranges[number].tolist()]
        mean, middle_mean = shifts[number]
        step = Int8Step(
            grids=PerProduct(*grids),
            biases=PerProduct(*torch.split(biases[number], sizes)),
            mean=mean,
            middle_mean=middle_mean,
        )
        calibrated.append(step)
    return calibrated


class Int8Layers:
    """The layers of one step: the packed products of its blocks, which other steps may
    share, with what calibration found for this step.
    """

    def __init__(
        self,
        products: PerProduct[Product],
        step: Int8Step,
        *,
        activation: Activation,
        inner: torch.dtype,
    ) -> None:
        self.products = products
        self.grids = step.grids
        self.biases = step.biases
        self.mean = step.mean
        self.middle_mean = step.middle_mean
        self.activation: Activation = activation
        self.inner = inner  # the dtype of query, key and value

    def project(self, x: Tensor, _: Tensor | None) -> Tensor:
        """Return query, key and value, (rows, 3 H)."""
        grid = self.grids.project
        centered = quantize(x - self.mean, grid)
        bias = self.biases.project
        return self.products.project(centered, grid, bias, dtype=self.inner)

    def mix(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """Return the output layer of attention, plus the residual, (rows, H)."""
        grid = self.grids.mix
        rounded = quantize(x.float(), grid)
        return self.products.mix(rounded, grid, self.biases.mix, add=residual)

    def middle_norm(self, norm: nn.LayerNorm) -> Norm:
        """Return the layer norm between the blocks, which also subtracts the mean."""
        # Its bias is added anyway, so that the shift costs nothing.
        shifted = norm.bias - self.middle_mean

        def apply(x: Tensor) -> Tensor:
            return F.layer_norm(
                x, norm.normalized_shape, norm.weight, shifted, norm.eps
            )

        return apply

    def widen(self, x: Tensor, _: Tensor | None) -> Tensor:
        """Return the activated intermediate layer as bytes, (rows, intermediate)."""
        grid = self.grids.widen
        return self.products.widen(
            quantize(x, grid),
            grid,
            self.biases.widen,
            activation=self.activation,
            # The kernel rounds its own result, so that the widest states are never in
            # memory in float32.
            onto=self.grids.narrow,
        )

    def narrow(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """Return the output layer of the feed-forward block, plus the residual, which
        lacks the mean that the bias has, (rows, H).
        """
        grid = self.grids.narrow
        return self.products.narrow(x, grid, self.biases.narrow, add=residual)


def int8_steps(albert: Albert) -> list[steps.Step]:
    """Return all steps of an eight-bit network: each block is packed once, and bound to
    the calibration of each step.
    """
    attend = attend_of(albert.config, in_rectangles=True)
    inner = torch.bfloat16 if packing_pays(torch.bfloat16) else torch.float32
    # by the number of their block
    projects = [Product(x.query, x.key, x.value) for x in albert.attention]
    mixes = [Product(block.output) for block in albert.attention]
    widens = [Product(block.intermediate) for block in albert.feed_forward]
    narrows = [Product(block.output) for block in albert.feed_forward]

    prepared = list[steps.Step]()
    calibrated = calibrated_steps(albert)
    for (first, second), calibrated_step in zip(albert.plan, calibrated, strict=True):
        attention = albert.attention[first]
        feed_forward = albert.feed_forward[second]
        layers = Int8Layers(
            PerProduct(projects[first], mixes[first], widens[second], narrows[second]),
            calibrated_step,
            activation=feed_forward.hidden_act,
            inner=inner,
        )
        attention_layers = steps.AttentionLayers(
            project=layers.project,
            attend=attend,
            output=layers.mix,
            norm=layers.middle_norm(attention.norm),
            heads=attention.heads,
        )
        feed_forward_layers = steps.FeedForwardLayers(
            intermediate=layers.widen,
            output=layers.narrow,
            norm=norm_of(feed_forward.norm, torch.float32),
        )
        step = partial(
            steps.block,
            attention_layers,
            feed_forward_layers,
            finish=steps.finish_step,
        )
        prepared.append(step)
    return prepared
