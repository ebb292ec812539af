"""A static folder in which a model answers inside the browser, with no server."""

from litebert.interop.export.web.export import WebReport, export_web

__all__ = ["WebReport", "export_web"]
