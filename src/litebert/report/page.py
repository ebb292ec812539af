"""The page: sections of words, figures and tables, shown by one template and one style sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

import jinja2

import litebert
from litebert.report.figures import Figure, draw
from litebert.report.tables import Table


@dataclass(frozen=True)
class Section:
    """A part of a page, shown in this order: a section that has nothing of it is left out."""

    title: str
    words: Sequence[str] = ()
    figures: Sequence[Figure] = ()  # side by side where there is room
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()  # until the reader opens them
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)  # lines to copy, by what they are for


@dataclass(frozen=True)
class Page:
    """A page: its title, its overview, its sections, and the files that it was written from."""

    name: str
    kind: str
    sections: Sequence[Section]
    sources: str
    status: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # what is empty is not shown

    def html(self) -> str:
        folder = files("litebert.report")
        style = (folder / "page.css").read_text("utf-8").partition("*/\n")[2]
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
        template = environment.from_string((folder / "page.html").read_text("utf-8"))
        page = template.render(page=self, style=style, draw=draw, zip=zip, version=litebert.__version__)
        return page.encode("utf-8", "replace").decode("utf-8")  # a file name may contain bytes that are not UTF-8
