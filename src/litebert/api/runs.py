"""Runs in the shell: list, compare, follow, average and clean them, and write their reports again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Required

from annotated_types import Ge
from typing_extensions import TypedDict

from litebert import report as pages
from litebert.answers import Shown
from litebert.errors import LitebertError
from litebert.files import readable_bytes
from litebert.report import comparison as tables
from litebert.report.tables import Cell, Table
from litebert.runs import Run, Waste, read_log
from litebert.runs import clean as clean_up

FOLLOW_SECONDS = 1.0


def list_runs(*, runs: Annotated[Path, "Folder of the runs."] = Path("runs")) -> Table:
    """List the runs in a folder: what was trained, how far, and with which result.

    `last` is the last step, `best` the best evaluation; over several seeds, their medians.

    litebert runs list
    litebert runs list --runs experiments --csv
    """
    table, errors = tables.list_runs(runs)
    notes = tuple(map(str, errors)) + (() if table.rows else (f"no runs in {runs}",))
    return replace(table, notes=notes, exit_code=errors[-1].exit_code if errors else 0)


def compare(*runs: Annotated[Path, Required]) -> tables.Comparison:
    """Say how runs differ: settings with their origins, then measures side by side.

    A folder with the runs of several seeds counts as one run.

    litebert runs compare runs/mrpc runs/mrpc-further
    litebert runs compare runs/one runs/two --markdown
    """
    named = {str(folder): Run.open(folder) for folder in runs}
    if len(named) < 2:
        raise LitebertError(
            "LB-528",
            "comparing needs two runs or more",
            received=" ".join(map(str, runs)) or "none",
            expected="litebert runs compare RUN RUN...",
            next="litebert runs list",
        )
    return tables.compare(named)


class TailRow(dict[str, Cell]):
    """A row of a log."""

    def as_json(self) -> dict[str, Cell]:
        """Return what --json prints."""
        return self

    def __str__(self) -> str:
        """Return the row as a line."""
        values = (
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.items()
            if name not in ("kind", "step")
        )
        return f"{self['kind']:<6}{self['step']:>9}  {'  '.join(values)}"


def tail(
    run: Path,
    *,
    rows: Annotated[int, Ge(1), "Last rows to print."] = 10,
    follow: Annotated[bool, "Print new rows until the run is finished."] = False,
) -> Iterator[TailRow]:
    """Print the last rows of a run's log, while it trains or afterwards; as JSON, one row a line.

    litebert runs tail runs/mine --follow
    litebert runs tail runs/mine --rows 3 --json
    """
    Run.open(run)  # refuses what is not a run
    num_shown = max(0, len(read_log(run)[0]) - rows)
    while True:
        is_finished = (run / "model" / "config.json").is_file()
        found = read_log(run)[0]
        for row in found[num_shown:]:
            yield TailRow(row)  # type: ignore[arg-type]  # the log has numbers and texts
        num_shown = len(found)
        if not follow or is_finished:
            return
        time.sleep(FOLLOW_SECONDS)


def average(
    run: Path,
    *,
    output: Annotated[Path, "Model to write."],
    last: Annotated[int, Ge(1), "Checkpoints to average."] = 1,
    until: Annotated[int | None, "Latest step to take; default: the newest checkpoint."] = None,
    force: Annotated[bool, "Replace the model if it exists."] = False,
) -> str:
    """Write the mean of the last checkpoints of a run (by default, the last alone) as a model.

    litebert runs average runs/mine --last 3 --output models/averaged
    litebert runs average runs/mine --until 20000 --output models/at-20000
    """
    from litebert.train.checkpoint import average_checkpoints

    steps = average_checkpoints(run, output, last=last, until=until, force=force)
    return f"{output}  from steps {', '.join(f'{step:,}' for step in steps)}"


class Cleaned(TypedDict):
    """The folders that no command needs any more; a dry run left them."""

    waste: list[Waste]
    is_dry: bool


def clean(folder: Path, *, dry_run: Annotated[bool, "Say what would be removed, and stop."] = False) -> Shown[Cleaned]:
    """Remove the checkpoints of finished runs, and what failed runs left behind; models stay.

    litebert runs clean runs --dry-run
    litebert runs clean runs/mine
    """
    if not folder.is_dir():
        raise LitebertError(
            "LB-888",
            f"there is no folder {folder}",
            received="a file" if folder.exists() else "nothing",
            expected="a run, or a folder of runs",
            next="litebert runs list",
        )
    waste = clean_up(folder, is_dry=dry_run)
    total = readable_bytes(sum(each.num_bytes for each in waste))
    lines = [f"{each.path}  {readable_bytes(each.num_bytes)}" for each in waste]
    note = f"{total} would be freed" if dry_run else f"{total} freed"
    return Shown({"waste": waste, "is_dry": dry_run}, "\n".join(lines), (note,))


class Report(TypedDict):
    """The page about a run."""

    report: str


def report(run: Path) -> Shown[Report]:
    """Write report.html into the folder RUN, finished or not, and print its path.

    litebert report runs/mine
    litebert report runs/mine --json
    """
    path = str(pages.write_report(run))
    return Shown({"report": path}, path)
