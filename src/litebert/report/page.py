"""Pages: sections of text, figures and tables, in one template with one style sheet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

import jinja2

import litebert
from litebert.report.figures import PALETTE, Figure, inline_picture
from litebert.report.tables import Table


@dataclass(frozen=True)
class Section:
    """A part of a page, with its content in this order; a section without content is
    left out.
    """

    title: str
    words: Sequence[str] = ()
    figures: Sequence[Figure] = ()  # side by side if there is room
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()  # collapsed until the reader opens them
    # lines to copy, by their purpose
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page: title, overview, sections, and the files that it was made from."""

    name: str
    kind: str
    sections: Sequence[Section]
    sources: str
    status: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # empty ones are not shown

    def html(self) -> str:
        folder = files("litebert.report")
        style = (folder / "page.css").read_text("utf-8").partition("*/\n")[2]
        environment = jinja2.Environment(
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
        )
        template = environment.from_string((folder / "page.html").read_text("utf-8"))
        page = template.render(
            page=self,
            palette=PALETTE,
            style=style,
            draw=inline_picture,
            zip=zip,
            version=litebert.__version__,
        )
        # a file name may contain bytes that are not UTF-8
        return page.encode("utf-8", "replace").decode("utf-8")
