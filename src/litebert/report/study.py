"""A page of studies: the paper's figures, ours, and a sentence on what was reproduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

import litebert
from litebert.files import write_bytes, write_text
from litebert.report.chart import Chart, RowPoint
from litebert.report.figure import chart_file, draw, draw_rows, rows_file
from litebert.report.markup import Html, document, figure, figures, heading, joined, paragraph, section, table
from litebert.report.table import Table, word
from litebert.report.theme import style_sheet


@dataclass(frozen=True)
class RowsFigure:
    """The rows of a table as a figure."""

    title: str
    caption: str
    rows: tuple[RowPoint, ...]

    @property
    def description(self) -> str:
        """The figure in words, row by row."""
        findings = [
            f"{row.label}: ours {word(fmean(row.values) if row.values else None)}, paper {word(row.paper, decimals=1)}"
            for row in self.rows
        ]
        return f"{self.title}: {'; '.join(findings)}."


@dataclass(frozen=True)
class Part:
    """One study: what the paper found, what we found, and the sentence that compares them."""

    name: str
    title: str
    paper: str
    finding: str
    tables: tuple[Table, ...]
    charts: tuple[Chart, ...] = ()
    rows: tuple[RowsFigure, ...] = ()


def write_page(path: Path, title: str, parts: Sequence[Part]) -> None:
    """Write studies to one HTML file that loads nothing else."""
    write_text(path, page(title, parts))


def page(title: str, parts: Sequence[Part]) -> str:
    """Return studies as one HTML page."""
    return document(
        f"{title} - litebert study",
        style=style_sheet(),
        header=joined([paragraph("Study", kind="quiet"), heading(title)]),
        main=joined(_section(part) for part in parts),
        footer=paragraph(
            f"Written by litebert {litebert.__version__} from the metrics files of the studies. "
            "The paper is arXiv 1909.11942. This page is one file and loads nothing.",
            kind="quiet",
        ),
    )


def write_pictures(folder: Path, parts: Sequence[Part]) -> list[Path]:
    """Write every figure as an SVG and a PNG file, and return their paths."""
    paths = []
    kinds: tuple[Literal["svg", "png"], ...] = ("svg", "png")
    for part in parts:
        for kind in kinds:
            drawn = [chart_file(each, kind) for each in part.charts]
            drawn += [rows_file(each.title, each.rows, kind) for each in part.rows]
            for number, data in enumerate(drawn, start=1):
                paths.append(folder / f"{part.name}-{number}.{kind}")
                write_bytes(paths[-1], data)
    return paths


def _section(part: Part) -> Html:
    drawn = [figure(each.title, draw(each), each.caption) for each in part.charts]
    drawn += [
        figure(each.title, draw_rows(each.title, each.description, each.rows), each.caption) for each in part.rows
    ]
    return section(
        part.title,
        paragraph(f"The paper: {part.paper}"),
        paragraph(f"Here: {part.finding}", kind="status"),
        *([figures(drawn)] if drawn else []),
        *(_table(each) for each in part.tables),
    )


def _table(found: Table) -> Html:
    rows = ([word(cell, decimals=found.decimals) for cell in row] for row in found.rows)
    return table(found.title, found.headings, rows, kind="numbers")
