"""What a page holds, whichever kind of run it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litebert.report.markup import Html


@dataclass(frozen=True)
class Content:
    """A page without its frame: what it is about, at a glance, and its sections in order."""

    name: str
    kind: str
    status: str
    facts: Mapping[str, str]
    sections: tuple[Html, ...]
    sources: str
