"""What runs reached: pages that open anywhere, tables for the terminal and for machines, figures."""

from __future__ import annotations

from pathlib import Path

from litebert.files import write_text
from litebert.report.training import training_page
from litebert.runs import Run

REPORT_FILE = "report.html"


def write_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a run, finished or not, or of several seeds, and return its path.

    The page depends on the files of the run alone: the same run gives the same bytes. It loads nothing.
    """
    write_text(folder / REPORT_FILE, training_page(Run.open(folder)).html())
    return folder / REPORT_FILE
