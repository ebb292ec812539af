"""litebert runs: what there is, and what differs between runs."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.formats import Format, printed, with_formats
from litebert.cli.output import note, show, show_json
from litebert.errors import LitebertError


@click.group()
def runs() -> None:
    """List all runs, or compare some.

    \b
    litebert runs list
    litebert runs compare runs/mrpc runs/mrpc-further --markdown
    """


@runs.command("list")
@click.option(
    "--runs", "folder", default="runs", show_default=True, type=click.Path(path_type=Path)
)
@with_formats
def list_runs(folder: Path, written_as: Format) -> None:
    """List the runs of a folder: what was trained, how far, with which result.

    `last` is the last step, `best` the best evaluation; over several seeds, their medians.

    \b
    litebert runs list
    litebert runs list --runs experiments --csv
    """
    from litebert.report import runs as found

    table, errors = found.list_runs(folder)
    show(printed([table], written_as))
    if not table.rows:
        note(f"no runs in {folder}")
    for error in errors[:-1]:
        note(str(error))
    if errors:
        raise errors[-1]


@runs.command("compare")
@click.argument(
    "folders", nargs=-1, required=True, metavar="RUN RUN...", type=click.Path(path_type=Path)
)
@with_formats
def compare_runs(folders: tuple[Path, ...], written_as: Format) -> None:
    """Say how runs differ: settings with their origins, then measures side by side.

    A folder with the runs of several seeds counts as one run.

    \b
    litebert runs compare runs/mrpc runs/mrpc-further
    litebert runs compare runs/one runs/two --markdown
    """
    from litebert.report.comparison import as_json, compare, one_below_the_other, side_by_side
    from litebert.report.seeds import read_run

    named = {str(folder): read_run(folder) for folder in folders}
    if len(named) < 2:
        raise LitebertError(
            "LB-528",
            "comparing needs two runs or more",
            received=" ".join(map(str, folders)),
            expected="litebert runs compare RUN RUN...",
            next="litebert runs list",
        )
    comparison = compare(named)
    if written_as == "json":
        show_json(as_json(comparison), indent=2)
        return
    is_csv = written_as == "csv"
    tables = [one_below_the_other(comparison)] if is_csv else side_by_side(comparison)
    show(printed(tables, written_as))
