"""The page: text, tables and figures in sections, shown by one template and one style sheet; the page of studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import jinja2

import litebert
from litebert.files import write_bytes
from litebert.report.figures import Figure, draw, picture
from litebert.report.tables import Table

Block: TypeAlias = str | Mapping[str, Any]
"""A part of a section: a paragraph, or a kind with what page.html shows of it. A style is a CSS class."""


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
    """A page: its title, its overview, its sections by their titles, and the files that it was written from."""

    name: str
    kind: str
    sections: Mapping[str, Sequence[Block]]  # without blocks, a section is left out
    sources: str
    status: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    of: str = "report"

    def html(self) -> str:
        folder = files("litebert.report")
        style = (folder / "page.css").read_text("utf-8").partition("*/\n")[2]
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
        template = environment.from_string((folder / "page.html").read_text("utf-8"))
        page = template.render(page=self, style=style, draw=draw, version=litebert.__version__)
        return page.encode("utf-8", "replace").decode("utf-8")  # a file name may contain bytes that are not UTF-8


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
    sections = {}
    for part in parts:
        blocks: list[Block] = [f"The paper: {part.paper}", paragraph(f"Here: {part.finding}", style="status")]
        blocks += [figures(part.figures)] if part.figures else []
        blocks += [table(each.title, each.headings, each.words(), style="numbers") for each in part.tables]
        sections[part.title] = blocks
    sources = "the metrics files of the studies. The paper is arXiv 1909.11942"
    return Page(title, "Study", sections, sources, of="study")


def write_pictures(folder: Path, part: Part) -> list[Path]:
    """Write every figure of a study as an SVG and a PNG file, and return their paths."""
    written = []
    for kind in ("svg", "png"):
        for number, each in enumerate(part.figures, start=1):
            written.append(folder / f"{part.name}-{number}.{kind}")
            write_bytes(written[-1], picture(each, kind))
    return written
