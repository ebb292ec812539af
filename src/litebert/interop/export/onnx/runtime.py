"""The packages of the extra [onnx], imported here alone; a graph as a function, and its latency."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

import numpy as np
import torch

from litebert.interop.export.padded import INPUTS, PaddedNetwork
from litebert.interop.export.parity import Run
from litebert.interop.export.ragged import Outputs
from litebert.interop.export.samples import Inputs
from litebert.reading.extras import missing_package

SHAPES = ((1, 16), (1, 128), (8, 128))
ROUNDS = 7


__all__ = ["onnx", "onnxruntime", "onnxscript", "start"]
_ERRORS_ONLY = 3


def measure(
    runners: Mapping[str, Run], network: PaddedNetwork, *, vocab_size: int, rounds: int = ROUNDS
) -> dict[str, dict[str, float]]:
    """Return for each runner the median milliseconds at each shape, `1x16` being one row of 16.

    The runners are interleaved, after a warm-up round: other work on the machine slows them
    all alike.
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
    """Return a rectangle without padding."""
    sizes = {"batch": batch, "choices": 1, "length": length}
    shape = [sizes[axis] for axis in axes]
    ids = np.arange(np.prod(shape)).reshape(shape) % vocab_size
    values = (ids, np.ones_like(ids), np.zeros_like(ids))
    return dict(zip(INPUTS, values, strict=True))


try:
    import onnx
    import onnxruntime
    import onnxscript  # torch.onnx uses it
except ImportError as error:
    raise missing_package(
        error.name or "onnx", extra="onnx", needed_for="export to ONNX"
    ) from error


def start(model: bytes) -> Run:
    """Return the graph as a function; onnxruntime itself does not heed torch.set_num_threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    # Threads that spin after a run would slow down the next run.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Inputs) -> Outputs:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return run
