"""The page: text, tables and figures in sections, shown by one template and one style sheet; the page of studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import jinja2
from markupsafe import Markup

import litebert
from litebert.files import write_bytes
from litebert.report.figures import Figure, draw, picture
from litebert.report.tables import Table, word

Block: TypeAlias = str | Mapping[str, Any]
"""A part of a section: a paragraph, or a kind with what page.html shows of it. A style is a CSS class."""


class Section(NamedTuple):
    title: str
    blocks: Sequence[Block]


def paragraph(text: str, *, style: str) -> Block:
    return {"kind": "paragraph", "text": text, "style": style}


def commands(*lines: str) -> Block:
    return {"kind": "commands", "lines": lines}


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[Any]], *, style: str = "") -> Block:
    """Return a table whose first column names its rows. A cell may have a share, 0 to 1, as its shade."""
    return {"kind": "table", "caption": caption, "headings": headings, "rows": list(rows), "style": style}


def figures(shown: Sequence[Figure]) -> Block:
    """Return figures, side by side where there is room."""
    return {"kind": "figures", "figures": shown}


def details(summary: str, *blocks: Block) -> Block:
    """Return blocks that are folded until the reader opens them."""
    return {"kind": "details", "summary": summary, "blocks": blocks}


@dataclass(frozen=True)
class Page:
    """A page: its title, its overview, its sections in order, and the files that it was written from."""

    name: str
    kind: str
    sections: Sequence[Section]
    sources: str
    status: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    of: str = "report"

    def html(self) -> str:
        style = (files("litebert.report") / "page.css").read_text("utf-8").partition("*/\n")[2]
        return _template().render(page=self, style=style, draw=draw, version=litebert.__version__)


@cache
def _template() -> jinja2.Template:
    def plain(value: object) -> object:
        """Replace what is not UTF-8, as in a file name of other bytes."""
        if isinstance(value, str) and not isinstance(value, Markup):
            return value.encode("utf-8", "replace").decode("utf-8")
        return value

    environment = jinja2.Environment(
        autoescape=True, finalize=plain, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string((files("litebert.report") / "page.html").read_text("utf-8"))


# ---- studies --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One study: what the paper found, what we found, and the sentence that compares them."""

    name: str
    title: str
    paper: str
    finding: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()


def study_page(title: str, parts: Sequence[Part]) -> Page:
    sections = []
    for part in parts:
        blocks: list[Block] = [f"The paper: {part.paper}", paragraph(f"Here: {part.finding}", style="status")]
        blocks += [figures(part.figures)] if part.figures else []
        for each in part.tables:
            rows = ([word(cell, decimals=each.decimals) for cell in row] for row in each.rows)
            blocks.append(table(each.title, each.headings, rows, style="numbers"))
        sections.append(Section(part.title, blocks))
    sources = "the metrics files of the studies. The paper is arXiv 1909.11942"
    return Page(title, "Study", sections, sources, of="study")


def write_pictures(folder: Path, part: Part) -> list[Path]:
    """Write every figure of a study as an SVG and a PNG file, and return their paths."""
    kinds: tuple[Literal["svg", "png"], ...] = ("svg", "png")
    written = []
    for kind in kinds:
        for number, each in enumerate(part.figures, start=1):
            written.append(folder / f"{part.name}-{number}.{kind}")
            write_bytes(written[-1], picture(each, kind))
    return written
