"""Compute the encoder with OpenVINO, as one graph, where that is faster.

Every operation of torch costs some microseconds in itself, which for a short text is a
quarter to a half of the time. A graph is one call. It also fuses what lies between the
products, and packs a block that several steps share only once.

`litebert.fast.operators` makes the graph, and `litebert.fast.parts` its inputs. The
states after each step are not outputs, which would keep OpenVINO from fusing;
`litebert.fast.steps` computes those.
"""

import threading
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from litebert.fast.attention import time_each
from litebert.fast.int8 import is_int8, kernels_work
from litebert.fast.operators import Layout, Tokens, compile_encoder, shared
from litebert.fast.parts import Part, divide
from litebert.fast.steps import Step, apply_steps
from litebert.nn import Albert, Batch

# Longer texts stay with torch, which never holds the scores of a whole text.
_LONGEST = 1_024  # tokens
# The lengths that are timed, in tokens, and the longest text that each stands for. The
# share of attention grows with the length, so that one length does not speak for all.
_SHORT = 16
_UP_TO = 64
_LONGER = ((128, 256), (512, _LONGEST))
# Two times that differ by less are equal on a busy machine.
_NOISE = 1.05


class Graph:
    """The first steps of an encoder as one graph, with the weights that it has now."""

    def __init__(self, albert: Albert, num_steps: int) -> None:
        self.num_steps = num_steps
        room = albert.config.max_position_embeddings
        self.longest = min(room, _LONGEST)  # tokens of a text
        self._model = compile_encoder(albert, num_steps)
        # A request holds the memory of a run, so that each thread needs its own.
        self._of_thread = threading.local()

    def fits(self, batch: Batch, num_steps: int) -> bool:
        """Return whether this graph is the faster way to apply so many steps."""
        return num_steps == self.num_steps and max(batch.lengths) <= self.longest

    def last(
        self, batch: Batch, queries: Int[Tensor, " queries"] | None = None
    ) -> Float[Tensor, "queries hidden"]:
        """Return the last states of all tokens, or of those at `queries`, in float32."""
        parts = divide(batch.lengths)
        if len(parts) == 1 and queries is None:
            return self._run(batch, parts[0], parts[0].layout)
        numbers = torch.arange(len(batch.ids)) if queries is None else queries
        states = list[Tensor]()
        places = list[Tensor]()  # of these states among the queries
        for part in parts:
            present, rows = part.find(numbers.numpy())
            if len(rows):
                states.append(self._run(batch, part, part.layout_for(rows)))
                places.append(torch.from_numpy(present))
        joined = torch.cat(states)  # (queries, hidden), part by part
        return torch.empty_like(joined).index_copy_(0, torch.cat(places), joined)

    def _run(
        self, batch: Batch, part: Part, layout: Layout
    ) -> Float[Tensor, "queries hidden"]:
        """Return the last states of the queries of a part."""
        if not hasattr(self._of_thread, "request"):
            self._of_thread.request = self._model.create_infer_request()
        request = self._of_thread.request
        tokens = Tokens(
            ids=shared(batch.ids.numpy()[part.tokens]),
            positions=shared(batch.positions.numpy()[part.tokens]),
            segments=shared(batch.segments.numpy()[part.tokens]),
        )
        # `infer(inputs)` would make tensors of all inputs at every call
        request.set_input_tensors(dict(enumerate([*tokens, *layout])))
        request.infer()
        # a copy, because the next run writes to the same memory
        return torch.from_numpy(request.get_output_tensor(0).data[0].copy())


# ---- whether a graph is faster ---------------------------------------------------------


def graph_of(albert: Albert, steps: Sequence[Step], *, is_forced: bool) -> Graph | None:
    """Return a graph that knows the longest text for which it is faster than the steps;
    None if there is no such text, or if OpenVINO lacks what the network needs.
    """
    has_precision = albert.dtype in (torch.float32, torch.bfloat16)
    is_supported = has_precision and albert.config.has_full_attention
    if is_int8(albert) and not kernels_work():
        is_supported = False  # this CPU saturates, for OpenVINO as for torch
    if not is_supported:
        return None
    graph = Graph(albert, albert.depth)
    if not is_forced:
        graph.longest = _longest_faster(albert, graph, steps)
    return graph if graph.longest else None


def _longest_faster(albert: Albert, graph: Graph, steps: Sequence[Step]) -> int:
    """Return the longest text for which a graph is faster than the steps; 0 if none is.

    Only a short text is timed in full. For longer ones one step is enough: what a call
    costs in itself is nothing beside their products.
    """
    if not _is_faster(albert, graph, steps[: albert.depth], _SHORT):
        return 0
    room = graph.longest
    longest = min(_UP_TO, room)
    first_step = Graph(albert, 1)
    for length, stands_for in _LONGER:
        if length > room:
            break
        if not _is_faster(albert, first_step, steps[:1], length):
            break
        longest = min(stands_for, room)
    return longest


def _is_faster(
    albert: Albert, graph: Graph, steps: Sequence[Step], length: int
) -> bool:
    """Return whether a graph computes one text in less time than the steps."""
    batch = Batch.from_lists([[0] * length])

    def apply_to_embedded() -> list[Tensor]:
        embedded = albert.embedding(batch).to(albert.dtype)
        return list(apply_steps(steps, embedded, batch, None))

    by_graph, by_steps = time_each(
        lambda: graph.last(batch), apply_to_embedded, rounds=3
    )
    return by_graph < _NOISE * by_steps
