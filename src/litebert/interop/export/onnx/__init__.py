"""One ONNX file of a model: weights stored once, int8 that is int8, checked in onnxruntime."""

from litebert.interop.export.onnx.export import ExportReport, Row, export_onnx

__all__ = ["ExportReport", "Row", "export_onnx"]
