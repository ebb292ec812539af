"""litebert study page: all studies of a folder on one page."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.output import show, show_json


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--html", required=True, type=click.Path(path_type=Path), help="The page to write.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def page(folder: Path, html: Path, as_json: bool) -> None:
    """Write one page of all studies whose metrics files are in FOLDER, and print its path.

    \b
    litebert study page study --html study.html
    litebert study page study --html study.html --json
    """
    from litebert.api.study import write_study
    from litebert.api.study_parts import read_parts

    parts = read_parts(folder)
    write_study(parts, html=html)
    if as_json:
        findings = {part.name: part.finding for part in parts}
        show_json({"page": html, "findings": findings}, indent=2)
    else:
        show(str(html))
