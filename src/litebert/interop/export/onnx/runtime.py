"""The packages of the extra [onnx]; a graph as a function, and its latency."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

import numpy as np

from litebert.errors import missing_package
from litebert.fast.graphs import onnx, onnxruntime, session
from litebert.interop.export.padded import INPUTS, PaddedNetwork
from litebert.interop.export.parity import RunBatch
from litebert.interop.export.ragged import Outputs
from litebert.interop.export.samples import Inputs

__all__ = ["onnx", "onnxruntime", "onnxscript", "start"]

SHAPES = ((1, 16), (1, 128), (8, 128))
ROUNDS = 7


def measure(
    runners: Mapping[str, RunBatch], network: PaddedNetwork, *, vocab_size: int, rounds: int = ROUNDS
) -> dict[str, dict[str, float]]:
    """Return the median milliseconds of each runner at each shape; `1x16` is one row of 16.

    After a warm-up round the runners are interleaved, so that other work on the machine slows all
    of them alike.
    """
    times: dict[str, dict[str, float]] = {name: {} for name in runners}
    for batch, length in SHAPES:
        if length not in network.lengths:
            continue
        inputs = full_rectangle(batch, length, axes=network.axes, vocab_size=vocab_size)
        taken: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(1 + rounds):
            for name, run in runners.items():
                begin = time.perf_counter()
                run(inputs)
                taken[name].append(1e3 * (time.perf_counter() - begin))
        for name, milliseconds in taken.items():
            times[name][f"{batch}x{length}"] = median(milliseconds[1:])
    return times


def full_rectangle(batch: int, length: int, *, axes: tuple[str, ...], vocab_size: int) -> Inputs:
    """Return inputs of one shape, without padding."""
    sizes = {"batch": batch, "choices": 1, "length": length}
    shape = [sizes[axis] for axis in axes]
    ids = np.arange(np.prod(shape)).reshape(shape) % vocab_size
    values = (ids, np.ones_like(ids), np.zeros_like(ids))
    return dict(zip(INPUTS, values, strict=True))


try:
    import onnxscript  # torch.onnx uses it
except ImportError as error:
    raise missing_package("onnxscript", extra="onnx", needed_for="export to ONNX") from error


def start(model: bytes) -> RunBatch:
    """Return the graph as a function."""
    running = session(model)
    names = [output.name for output in running.get_outputs()]

    def run(inputs: Inputs) -> Outputs:
        return dict(zip(names, running.run(names, inputs), strict=True))

    return run
