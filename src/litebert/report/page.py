"""The page: results first, then every setting."""

from __future__ import annotations

from pathlib import Path

import litebert
from litebert.files import write_text
from litebert.report import finetuning, pretraining, several
from litebert.report.markup import Html, document, facts, heading, joined, paragraph
from litebert.report.overview import Content
from litebert.report.seeds import RecordOrSeeds, Seeds, read_run
from litebert.report.theme import style_sheet

REPORT_FILE = "report.html"
_CONTENT_OF = {"pretraining": pretraining.content_of, "fine-tuning": finetuning.content_of}


def write_report(run_folder: Path) -> Path:
    """Write `report.html` into the folder of a run, finished or not, and return its path.

    The page depends on the files of the run alone: the same run gives the same bytes. A folder
    whose seed-N folders are runs gets a page about all of them.

    Raises:
        LitebertError: LB-650, there is no run; or matplotlib is missing.
        DamagedError: The files are not what a run writes.
    """
    page = page_of(read_run(run_folder))
    path = run_folder / REPORT_FILE
    write_text(path, page)
    return path


def page_of(run: RecordOrSeeds) -> str:
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
