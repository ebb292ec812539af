"""One ONNX file of a model: weights stored once, int8 that is int8, checked in onnxruntime."""

from litebert.interop.export.onnx.export import OnnxReport, OnnxRow, export_onnx

__all__ = ["OnnxReport", "OnnxRow", "export_onnx"]
