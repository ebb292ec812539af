"""Tracing of a network for exporters: one graph for all batch sizes and lengths."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.export import Dim, ExportedProgram

from litebert.interop.export.network import INPUTS, PaddedNetwork


def trace(network: PaddedNetwork) -> ExportedProgram:
    """Trace the network once for all shapes."""
    sizes = {"batch": 2, "choices": 3, "length": min(8, network.lengths[-1])}
    shape = [sizes[axis] for axis in network.axes]
    example = tuple(torch.ones(shape, dtype=torch.int64) for _ in INPUTS)
    with torch.no_grad(), quiet():
        program = torch.export.export(
            network, example, dynamic_shapes=dynamic_shapes(network), strict=False
        )
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # contains paths of this machine
    return program


def dynamic_shapes(network: PaddedNetwork) -> tuple[dict[int, Dim], ...]:
    """Make the axes of every input dynamic: any batch size, and all lengths with
    positions.
    """
    lengths = network.lengths
    dims = {
        "batch": Dim("batch"),
        "choices": Dim("choices"),
        "length": Dim("length", min=lengths[0], max=lengths[-1]),
    }
    axes = {number: dims[axis] for number, axis in enumerate(network.axes)}
    return tuple(axes for _ in INPUTS)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's warnings about itself, and its exporter's log of missing
    packages.
    """
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.setLevel(level)
