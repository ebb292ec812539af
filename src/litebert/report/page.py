"""The page: what a reader asks first comes first, every setting is at hand further down."""

from __future__ import annotations

import litebert
from litebert.report import finetuning, pretraining, several
from litebert.report.content import Content
from litebert.report.markup import Html, document, facts, heading, joined, paragraph
from litebert.report.seeds import Run, Seeds
from litebert.report.theme import style_sheet

_CONTENT_OF = {"pretraining": pretraining.content_of, "fine-tuning": finetuning.content_of}


def page_of(run: Run) -> str:
    """Return the report of a run, or of several seeds, as one HTML page."""
    content = several.content_of(run) if isinstance(run, Seeds) else _CONTENT_OF[run.kind](run)
    return document(
        f"{content.name} - litebert report",
        style=style_sheet(),
        header=_header(content),
        main=joined(content.sections),
        footer=paragraph(
            f"Written by litebert {litebert.__version__} from the run's {content.sources}. "
            "This page is one file and loads nothing.",
            kind="quiet",
        ),
    )


def _header(content: Content) -> Html:
    return joined(
        [
            paragraph(content.kind, kind="quiet"),
            heading(content.name),
            paragraph(content.status, kind="status"),
            facts(content.facts),
        ]
    )
