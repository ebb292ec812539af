"""A model as one ONNX file: weights stored once, true int8, checked in onnxruntime."""

from litebert.interop.export.onnx.export import OnnxReport, OnnxRow, export_onnx

__all__ = ["OnnxReport", "OnnxRow", "export_onnx"]
