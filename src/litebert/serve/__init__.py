"""Answers over HTTP: a server without torch, one supervised process a model, a page at /."""

from litebert.serve.entry import ModelSource
from litebert.serve.limits import ServerSettings
from litebert.serve.server import serve

__all__ = ["ModelSource", "ServerSettings", "serve"]
