"""Answers over HTTP: a server without torch, a supervised process per model, a page at /."""

from litebert.serve.entry import ModelSource
from litebert.serve.limits import ServerSettings
from litebert.serve.server import serve

__all__ = ["ModelSource", "ServerSettings", "serve"]
