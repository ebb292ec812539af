"""A model as a torch.export program: one .pt2 file that torch runs without litebert."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.export import Dim, ExportedProgram

from litebert.interop.export.check import OUR_TEXTS, Inputs, Outputs, compare, padded_batches, require_equal
from litebert.interop.export.network import INPUTS, PaddedNetwork, open_source, require_free, write_export
from litebert.interop.reports import ProgramReport

_TRACED_SIZES = {"batch": 2, "choices": 3, "length": 8}


def export_program(folder: Path, output: Path, *, head: str | None = None) -> ProgramReport:
    """Write a model folder as a program for torch.export.load, for any batch size and length.

    It is loaded as a user would and compared with the network before anything is written.
    """
    require_free(output, suffix=".pt2", source=folder)
    source = open_source(folder, head=head)
    names = source.padded.output_names
    buffer = io.BytesIO()
    torch.export.save(trace(source.padded), buffer)
    data = buffer.getvalue()
    call = torch.export.load(io.BytesIO(data)).module()

    def run(inputs: Inputs) -> Outputs:
        with torch.no_grad():
            outputs = call(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        return {name: values.numpy() for name, values in zip(names, outputs, strict=True)}

    parity = compare(run, source.network, padded_batches(OUR_TEXTS, source.tokenizer, source.padded))
    require_equal(parity, what=str(output))
    write_export(output, data, source=folder)
    return ProgramReport(output, source.head, INPUTS, names, len(data), parity.max_difference)


def dynamic_shapes(network: PaddedNetwork) -> tuple[dict[int, Dim], ...]:
    """Make the axes of every input dynamic: any batch size, and all lengths with positions."""
    lengths = network.lengths
    dims = {"batch": Dim("batch"), "choices": Dim("choices"), "length": Dim("length", min=lengths[0], max=lengths[-1])}
    return tuple({i: dims[axis] for i, axis in enumerate(network.axes)} for _ in INPUTS)


def trace(network: PaddedNetwork) -> ExportedProgram:
    """Trace the network once for all shapes."""
    sizes = _TRACED_SIZES | {"length": min(_TRACED_SIZES["length"], network.lengths[-1])}
    shape = tuple(sizes[axis] for axis in network.axes)
    example = tuple(torch.ones(shape, dtype=torch.int64) for _ in INPUTS)
    with torch.no_grad(), quiet():
        program = torch.export.export(network, example, dynamic_shapes=dynamic_shapes(network), strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's warnings about itself, and its exporter's log of missing packages."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
