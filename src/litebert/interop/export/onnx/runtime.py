"""The packages of the extra [onnx], imported here alone, and a graph as a function."""

from __future__ import annotations

import torch

from litebert.interop.export.parity import Run
from litebert.interop.export.ragged import Outputs
from litebert.interop.export.samples import Inputs
from litebert.reading.extras import missing_package

try:
    import onnx
    import onnxruntime
    import onnxscript  # torch.onnx uses it
except ImportError as error:
    raise missing_package(
        error.name or "onnx", extra="onnx", needed_for="export to ONNX"
    ) from error

__all__ = ["onnx", "onnxruntime", "onnxscript", "start"]

_ERRORS_ONLY = 3


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
