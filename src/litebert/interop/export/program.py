"""A model as a torch.export program: one .pt2 file that torch runs without litebert."""

from __future__ import annotations

import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from litebert.errors import LitebertError
from litebert.files import write_bytes
from litebert.interop.export.padded import INPUTS, PaddedNetwork
from litebert.interop.export.parity import RunBatch, compare, require_equal
from litebert.interop.export.ragged import Outputs
from litebert.interop.export.samples import OUR_TEXTS, Inputs, padded_batches
from litebert.interop.export.source import open_source, require_free, write_export

_TRACED_SIZES = {"batch": 2, "choices": 3, "length": 8}


@dataclass(frozen=True)
class ProgramReport:
    """What was written, its inputs and outputs, and how far it is from the ragged network."""

    output: Path
    head: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int
    max_difference: float
    is_compiled: bool


def export_program(folder: Path, output: Path, *, head: str | None = None, compiled: bool = False) -> ProgramReport:
    """Write a model folder as a program for torch.export.load, for any batch size and length.

    Compiled, it is a package of machine code for torch._inductor.aoti_load_package and, in C++,
    torch::inductor::AOTIModelPackageLoader; this needs a C++ compiler and a minute.

    Raises:
        LitebertError: LB-750, no such head; LB-751, LB-752, the output is taken; LB-754, it
            cannot be compiled here; LB-755, the program does not give the network's numbers.
    """
    require_free(output, suffix=".pt2", source=folder)
    source = open_source(folder, head=head)
    program = trace(source.padded)
    data = _compiled(program) if compiled else _saved(program)
    run = _loaded(data, source.padded, is_compiled=compiled)
    batches = padded_batches(OUR_TEXTS, source.tokenizer, source.padded)
    parity = compare(run, source.network, batches)
    require_equal(parity, what=str(output))
    write_export(output, data, source=folder)
    return ProgramReport(
        output=output,
        head=source.head,
        inputs=INPUTS,
        outputs=source.padded.output_names,
        bytes=len(data),
        max_difference=parity.max_difference,
        is_compiled=compiled,
    )


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


def _saved(program: ExportedProgram) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _compiled(program: ExportedProgram) -> bytes:
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.exc import InductorError

    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "model.pt2"
        try:
            with quiet():
                aoti_compile_and_package(program, package_path=str(package))
        except InductorError as error:
            raise LitebertError(
                "LB-754",
                "the program cannot be compiled on this machine",
                received=str(error).splitlines()[0],
                expected="a working C++ compiler, g++ or the one that CXX names",
                next="install g++, or omit --compile",
            ) from error
        return package.read_bytes()


def _loaded(data: bytes, network: PaddedNetwork, *, is_compiled: bool) -> RunBatch:
    """Load what was saved, as a user would."""
    call = _package(data) if is_compiled else torch.export.load(io.BytesIO(data)).module()

    def run(inputs: Inputs) -> Outputs:
        with torch.no_grad():
            outputs = call(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        named = zip(network.output_names, outputs, strict=True)
        return {name: values.numpy() for name, values in named}

    return run


def _package(data: bytes) -> Callable[..., tuple[Tensor, ...]]:
    from torch._inductor import aoti_load_package

    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "model.pt2"
        write_bytes(package, data)
        loaded: Callable[..., tuple[Tensor, ...]] = aoti_load_package(str(package))
        return loaded
