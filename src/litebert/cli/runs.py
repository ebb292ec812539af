"""litebert runs: list, compare, follow, resume, average and clean runs."""

from __future__ import annotations

import time
from pathlib import Path

import click

from litebert.cli.output import Format, note, printed, show, show_json, stop, with_formats
from litebert.cli.texts import AtLeast
from litebert.errors import LitebertError
from litebert.files import Json

_FOLLOW_SECONDS = 1.0


@click.group()
def runs() -> None:
    """List and compare runs, follow or resume one, average checkpoints, free disk space.

    \b
    litebert runs list
    litebert runs resume runs/mine
    litebert runs compare runs/mrpc runs/mrpc-further --markdown
    """


@runs.command("list")
@click.option("--runs", "folder", default="runs", show_default=True, type=click.Path(path_type=Path))
@with_formats
def list_runs(folder: Path, written_as: Format) -> None:
    """List the runs in a folder: what was trained, how far, and with which result.

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
@click.argument("folders", nargs=-1, required=True, metavar="RUN RUN...", type=click.Path(path_type=Path))
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


@runs.command("tail")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--rows", default=10, show_default=True, type=AtLeast(1), help="Last rows to print.")
@click.option("--follow", is_flag=True, help="Print new rows until the run is finished.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one row per line.")
def tail_run(folder: Path, rows: int, follow: bool, as_json: bool) -> None:
    """Print the last rows of a run's log, while it trains or afterwards.

    \b
    litebert runs tail runs/mine --follow
    litebert runs tail runs/mine --rows 3 --json
    """
    from litebert.runs import read_record
    from litebert.runs.metrics import read_log

    read_record(folder)  # refuses what is not a run
    printed_rows = max(0, len(read_log(folder)[0]) - rows)
    while True:
        is_finished = (folder / "model" / "config.json").is_file()
        found = read_log(folder)[0]
        for row in found[printed_rows:]:
            if as_json:
                show_json(row)
            else:
                show(_line(row))
        printed_rows = len(found)
        if not follow or is_finished:
            return
        time.sleep(_FOLLOW_SECONDS)


def _line(row: dict[str, Json]) -> str:
    values = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
        if name not in ("kind", "step")
    )
    return f"{row['kind']:<6}{row['step']:>9}  {'  '.join(values)}"


@runs.command("resume")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def resume_run(folder: Path, quiet: bool) -> None:
    """Continue a run that was stopped, with the settings in its run.json.

    \b
    litebert runs resume runs/mine
    litebert runs resume runs/mine --quiet
    torchrun --nproc-per-node 2 -m litebert runs resume runs/mine
    """
    from litebert.api.training import resume

    stop(resume(folder, quiet=quiet).exit_code)


@runs.command("average")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Model to write.")
@click.option("--last", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--until", type=int, help="Latest step to take; default: the newest checkpoint.")
@click.option("--force", is_flag=True, help="Replace the model if it exists.")
def average_run(folder: Path, output: Path, last: int, until: int | None, force: bool) -> None:
    """Write the mean of the last checkpoints of a run (by default, the last alone) as a model.

    \b
    litebert runs average runs/mine --last 3 --output models/averaged
    litebert runs average runs/mine --until 20000 --output models/at-20000
    """
    from litebert.train.checkpoint import average_checkpoints

    steps = average_checkpoints(folder, output, last=last, until=until, force=force)
    show(f"{output}  from steps {', '.join(f'{step:,}' for step in steps)}")


@runs.command("clean")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and stop.")
def clean_runs(folder: Path, dry_run: bool) -> None:
    """Remove the checkpoints of finished runs, and what failed runs left behind; models stay.

    \b
    litebert runs clean runs --dry-run
    litebert runs clean runs/mine
    """
    from litebert.files import readable_bytes
    from litebert.runs.clean import clean

    if not folder.is_dir():
        raise LitebertError(
            "LB-888",
            f"there is no folder {folder}",
            received="a file" if folder.exists() else "nothing",
            expected="a run, or a folder of runs",
            next="litebert runs list",
        )
    found = clean(folder, is_dry=dry_run)
    for waste in found:
        show(f"{waste.path}  {readable_bytes(waste.num_bytes)}")
    total = readable_bytes(sum(waste.num_bytes for waste in found))
    note(f"{total} {'would be' if dry_run else ''} freed".replace("  ", " "))
