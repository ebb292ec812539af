"""Write report.html beside the run it describes."""

from __future__ import annotations

from pathlib import Path

from litebert.files import write_text
from litebert.report.page import page_of
from litebert.report.seeds import read_run

REPORT_FILE = "report.html"


def write_report(run_folder: Path) -> Path:
    """Write `report.html` into a run's folder and return its path; unfinished runs are welcome.

    The page follows from the files of the run alone: the same run gives the same bytes. A folder
    whose seed-N folders are runs gets a page about all of them.
    Raises: LitebertError where there is no run, or matplotlib is missing; DamagedError where its
    files are not what a run writes.
    """
    page = page_of(read_run(run_folder))
    path = run_folder / REPORT_FILE
    write_text(path, page)
    return path
