"""The engine, set as `albert.engine`: it computes a network in training or, with packed
weights, in inference.

    accelerate(network.albert)     # from now on, the same numbers faster
    pack(network.eval().albert)    # and faster still, until the weights change
"""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain
from math import isfinite, isnan
from operator import attrgetter, is_, methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import Backend
from litebert.device import device_of
from litebert.errors import DamagedError, no_such_name
from litebert.fast.linear import (
    Linear,
    packed_linear,
    plain_linear,
    repeatable_linear,
)
from litebert.fast.steps import Step, apply_steps, make_steps
from litebert.nn import Albert, Batch, Network, pad_rows

if TYPE_CHECKING:
    from litebert.fast.graphs import Graph


class Packed(NamedTuple):
    """What computes with packed weights."""

    watch: "Watch"  # of the weights, from when they were packed
    steps: Sequence[Step]
    project: Linear | None  # the projection of the embeddings, if there is one
    graph: "Graph | None"  # for the last states, if that is faster


class Engine:
    """Computes the states of an encoder, with packed weights if they are packed,
    otherwise with training steps.

    `Albert` calls `last` and `states`, once `accelerate` has attached the engine.
    """

    def __init__(self) -> None:
        self.is_checkpointed = False
        self.is_compiled = False
        # what is to compute with packed weights; None: they are not to be packed
        self.backend: str | None = None
        self.is_repeatable = False  # see `pack`
        self.packed: Packed | None = None

    def last(
        self, albert: Albert, batch: Batch, queries: Tensor | None = None
    ) -> Tensor:
        """Return the last states, as `Albert.forward` does."""
        packed = self.packed_weights(albert)
        graph = None if packed is None else packed.graph
        # A graph has one depth, and knows how long a text may be.
        if graph is not None and graph.fits(batch, albert.depth):
            return graph.last(batch, queries).to(albert.dtype)
        for state in self._states(albert, packed, batch, queries):
            last = state  # only one is kept in memory
        return last

    def states(
        self, albert: Albert, batch: Batch, queries: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield the states as `Albert.states` does, up to its depth; the last step
        computes only `queries`.
        """
        yield from self._states(albert, self.packed_weights(albert), batch, queries)

    def _states(
        self,
        albert: Albert,
        packed: Packed | None,
        batch: Batch,
        queries: Tensor | None,
    ) -> Iterator[Tensor]:
        hidden = self.embed(albert, batch, packed).to(albert.dtype)
        yield hidden
        yield from apply_steps(self.steps(albert, packed), hidden, batch, queries)

    def steps(self, albert: Albert, packed: Packed | None) -> Sequence[Step]:
        """Return the steps up to the depth of the encoder."""
        steps = self._training_steps(albert) if packed is None else packed.steps
        return steps[: albert.depth]

    def embed(
        self, albert: Albert, batch: Batch, packed: Packed | None
    ) -> Float[Tensor, "tokens hidden"]:
        """Return the projected embeddings, with the packed projection if there is
        one.
        """
        if packed is None or packed.project is None:
            embedded: Tensor = albert.embedding(batch)
            return embedded
        # Only the projection is a product; looking up and adding cannot be packed.
        rows = pad_rows(albert.embedding.look_up(batch))
        return packed.project(rows, None)[: len(batch.ids)]

    def packed_weights(self, albert: Albert) -> Packed | None:
        """Return what computes with packed weights, packing them if they are to be
        packed; None in training, when gradients are needed, and from the time when the
        originals have changed.
        """
        if albert.training:
            self._unpack()
        # Gradients need the originals, but say nothing about later calls.
        if self.backend is None or torch.is_grad_enabled():
            return None
        if self.packed is None:  # in a copy of a packed network, for instance
            self.packed = self._pack(albert)
        elif not self.packed.watch.is_unchanged():
            # Dropped, and not packed again: the next change may come at the next call.
            self._unpack()
        return self.packed

    def _unpack(self) -> None:
        self.backend = None
        self.packed = None

    def _training_steps(self, albert: Albert) -> Sequence[Step]:
        """Return steps that gradients may pass through; their weights are cast anew,
        since each training step changes them.
        """
        steps = make_steps(
            albert, plain_linear, for_training=True, is_compiled=self.is_compiled
        )
        if not self.is_checkpointed:
            return steps
        # A checkpoint keeps the input of a step, (tokens, hidden), and nothing else.
        return [partial(checkpoint, step, use_reentrant=False) for step in steps]

    def _pack(self, albert: Albert) -> Packed:
        """Pack the weights in the layout of the fastest kernels here."""
        from litebert.fast.int8 import int8_steps, is_int8, kernels_work

        is_on_cpu = device_of(albert).is_cpu
        steps: Sequence[Step]
        # Without these kernels, which only CPUs have, rounded weights are used in the
        # network's own precision.
        if is_int8(albert) and is_on_cpu and kernels_work():
            steps = int8_steps(albert)
        elif self.is_repeatable:
            steps = make_steps(albert, repeatable_linear, is_repeatable=True)
        else:
            steps = make_steps(albert, packed_linear)
        graph = None
        # OpenVINO is used on the CPU alone.
        if is_on_cpu and self.backend != "torch":
            from litebert.fast.graphs import graph_of

            is_forced = self.backend == "openvino"
            graph = graph_of(albert, steps, is_forced=is_forced)
        return Packed(Watch(albert), steps, _packed_projection(albert), graph)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out packed weights, whose addresses and layouts belong to this process:
        a copy packs its own.
        """
        return self.__dict__ | {"packed": None}


def _packed_projection(albert: Albert) -> Linear | None:
    """Return the packed projection of the embeddings; None if there is none."""
    layer = albert.embedding.projection
    if not isinstance(layer, nn.Linear):
        return None
    return packed_linear(layer.weight, layer.bias, layer.weight.dtype, "linear")


class Watch:
    """Notices when the weights of an encoder change.

    Every call of a packed network looks, so that the walk over its modules is made
    only once.
    """

    def __init__(self, albert: Albert) -> None:
        # the dictionaries in which torch keeps the children and the parameters of each
        # module; another object in one of them is a replaced layer or weight
        self._owners = list[dict[str, Any]]()
        for module in albert.modules():
            owned: tuple[dict[str, Any], ...] = (module._modules, module._parameters)
            self._owners += filter(None, owned)
        self._objects = self._find_objects()
        self._weights = [x for x in self._objects if isinstance(x, Tensor)]
        # Tensors that were made in inference mode do not count how often they change:
        # of these, only a move to another address is noticed.
        self._counting = [x for x in self._weights if not x.is_inference()]
        self.stamps = self._find_stamps()

    def is_unchanged(self) -> bool:
        """Return whether the weights are the same objects, at the same addresses, and
        were not written to.
        """
        objects = self._find_objects()
        if len(objects) != len(self._objects):
            return False
        are_same = all(map(is_, objects, self._objects))
        return are_same and self._find_stamps() == self.stamps

    def _find_objects(self) -> list[Any]:
        return list(chain.from_iterable(map(dict.values, self._owners)))

    def _find_stamps(self) -> list[int]:
        return [*map(_ADDRESS, self._weights), *map(_NUM_WRITES, self._counting)]


# Called for all weights at every call of the network, hence without a Python loop.
_ADDRESS = methodcaller("data_ptr")
_NUM_WRITES = attrgetter("_version")


# ---- what callers use ----------------------------------------------------------------


def accelerate(albert: Albert) -> Engine:
    """Attach the engine to an encoder, and return the engine; results are the same, but
    computed faster.
    """
    if not isinstance(albert.engine, Engine):
        albert.engine = Engine()
    return albert.engine


def checkpoint_gradients(albert: Albert) -> None:
    """Turn on gradient checkpointing: keep only the input of each step, and recompute
    the rest in the backward pass.
    """
    accelerate(albert).is_checkpointed = True


def compile_steps(albert: Albert) -> None:
    """Compile the steps of training with torch.compile, which takes a minute once."""
    accelerate(albert).is_compiled = True


@torch.no_grad()
def pack(
    albert: Albert, backend: str = "torch", *, is_repeatable: bool = False
) -> None:
    """Pack the current weights for inference, in eight bits if they are stored that
    way.

    The fastest kernels are found by timing them, once in a process, and in bf16 they
    round differently. Packing that is repeatable chooses by rule instead, so that
    another process gets the same bits: training needs that when it is resumed.

    Training and gradients use the original weights; if those change, the packed ones
    are dropped. "openvino" computes the last states as one graph, where it has the
    operators. "auto" does so if OpenVINO is installed, and only where it is faster.
    """
    if backend not in get_args(Backend):
        raise no_such_name(
            "LB-975",
            "there is no such backend",
            str(backend),
            get_args(Backend),
            next='backend="auto"',
        )
    is_absent = backend == "auto" and find_spec("openvino") is None
    engine = accelerate(albert)
    engine.backend = "torch" if is_absent else backend
    engine.is_repeatable = is_repeatable
    engine.packed = None
    engine.packed_weights(albert)


@torch.no_grad()
def is_packed(albert: Albert) -> bool:
    """Return whether the current weights are packed; in a copy of a packed network,
    pack them first.
    """
    engine = albert.engine
    if not isinstance(engine, Engine) or engine.backend is None:
        return False
    engine.packed_weights(albert)  # drops them if the originals have changed
    return engine.backend is not None


def refuse_non_finite(network: Network) -> None:
    """Make a network raise LB-472 instead of returning outputs that are not finite."""
    for child in network.children():
        child.register_forward_hook(_check_outputs)


def _check_outputs(
    module: nn.Module, _inputs: object, outputs: Tensor | tuple[Tensor, ...]
) -> None:
    tensors = (outputs,) if isinstance(outputs, Tensor) else outputs
    if not all(_is_finite(x.detach()) for x in tensors):
        raise DamagedError(
            "LB-472",
            "the network returns NaN or infinity",
            received=_largest_weight(module),
            expected="finite weights, usually below 100",
            next="make or fetch the model again; in bf16, try fp32 first",
        )


def _is_finite(x: Tensor) -> bool:
    """Return whether all numbers are finite; the host waits for a GPU, as it would for
    the result.
    """
    total: Any = x.sum().tolist()
    # a finite sum implies finite numbers, but a sum of finite numbers may overflow
    return isfinite(total) or bool(x.isfinite().all())


def _largest_weight(module: nn.Module) -> str:
    """Say how large the weights of a module are; NaN ranks highest."""
    largest = dict[str, float]()  # the largest weight of each tensor
    for name, x in module.state_dict().items():
        if x.numel() and not x.is_meta:
            largest[name] = x.float().abs().max().item()
    if not largest:
        return f"the outputs of {type(module).__name__}, which has no weights"
    name = max(largest, key=lambda name: (isnan(largest[name]), largest[name]))
    return f"the largest weight is {largest[name]:.3g}, in {name}"
