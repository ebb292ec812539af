"""Export a model as static files, with which it answers inside the browser."""

from litebert.interop.export.web.export import WebReport, export_web

__all__ = ["WebReport", "export_web"]
