"""Export as a program of torch, which runs without litebert; exports to ONNX begin with
the same trace.
"""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.export import Dim, ExportedProgram

from litebert.interop import ExportReport
from litebert.interop.export.check import Inputs, Outputs, require_near
from litebert.interop.export.network import INPUTS, PaddedNetwork
from litebert.interop.export.source import open_source, require_free, write_beside


def export_program(
    folder: Path, output: Path, *, has_head: bool = True
) -> ExportReport:
    """Write a model folder as a program for torch.export.load, for any batch size and
    length.

    It is loaded as a user would load it and compared with the network before anything
    is written.
    """
    beside = require_free(output, suffix=".pt2", source=folder)
    source = open_source(folder, has_head=has_head)
    names = source.padded.output_names
    buffer = io.BytesIO()
    torch.export.save(trace(source.padded), buffer)
    call = torch.export.load(io.BytesIO(buffer.getvalue())).module()

    def run(inputs: Inputs) -> Outputs:
        outputs = call(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        named = zip(names, outputs, strict=True)
        return {name: output.numpy() for name, output in named}

    parity = require_near(run, source, output)
    write_beside(beside, output, buffer.getvalue())
    return ExportReport(output, names, output.stat().st_size, parity)


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
