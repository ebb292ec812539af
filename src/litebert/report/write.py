"""Write report.html beside the run it describes."""

from __future__ import annotations

from pathlib import Path

from litebert.files import write_text
from litebert.report.page import page_of
from litebert.report.record import read_record

REPORT_FILE = "report.html"


def write_report(run_folder: Path) -> Path:
    """Write `report.html` into a run's folder and return its path; unfinished runs are welcome.

    The page follows from run.json and metrics.jsonl alone: the same run gives the same bytes.
    Raises: LitebertError where there is no run, or matplotlib is missing; DamagedError where its
    files are not what a run writes.
    """
    page = page_of(read_record(run_folder))
    path = run_folder / REPORT_FILE
    write_text(path, page)
    return path
