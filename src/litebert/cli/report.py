"""litebert report: write the page about a run."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.output import show, show_json


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report(run: Path, as_json: bool) -> None:
    """Write report.html into the folder RUN, finished or not, and print its path.

    \b
    litebert report runs/mine
    litebert report runs/mine --json
    """
    from litebert.report import write_report

    path = write_report(run)
    if as_json:
        show_json({"report": str(path)})
    else:
        show(str(path))
