"""The packages of the extra [onnx], imported here alone."""

from __future__ import annotations

from litebert.reading.extras import missing_package

try:
    import onnx
    import onnxruntime
    import onnxscript  # torch.onnx uses it
except ImportError as error:
    raise missing_package(
        error.name or "onnx", extra="onnx", needed_for="export to ONNX"
    ) from error

__all__ = ["onnx", "onnxruntime", "onnxscript"]
