"""litebert config: every setting, and where the values of a run came from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from litebert.cli import output
from litebert.cli.output import show_json


@click.group()
def config() -> None:
    """List every setting, or show one run's with the origin of each value.

    \b
    litebert config list
    litebert config show runs/mine --origin
    """


@config.command("list")
@click.argument("kind", type=click.Choice(["pretrain", "finetune"]), default="pretrain")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_settings(kind: str, as_json: bool) -> None:
    """List every setting of pretraining, or of fine-tuning, with its default and its meaning.

    \b
    litebert config list
    litebert config list finetune --json
    """
    from litebert.config import FinetuneConfig, PretrainConfig, describe

    rows = describe(PretrainConfig if kind == "pretrain" else FinetuneConfig)
    if as_json:
        show_json(rows, indent=2)
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        meaning = f"{row.description} ({row.allowed})"
        output.show(f"{row.name:<{width}}  {row.default:<14}  {meaning}")


@config.command("show")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--origin", is_flag=True, help="Say where each value came from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(run: Path, origin: bool, as_json: bool) -> None:
    """Show the settings a run was made with.

    \b
    litebert config show runs/mine --origin
    litebert config show runs/mrpc --json
    """
    from litebert.errors import LitebertError
    from litebert.runs import read_run

    recorded = read_run(run)
    if recorded is None:
        raise LitebertError(
            "LB-520",
            f"{run} is not a run",
            received="a folder without run.json",
            expected="a folder made by litebert pretrain",
            next="ls runs",
        )
    settings = recorded.settings
    origins = {name: str(origin) for name, origin in recorded.origins.items()}
    if as_json:
        show_json({"settings": settings, "origins": origins}, indent=2)
        return
    for name, value in settings.items():
        suffix = f"  # {origins.get(name, 'default')}" if origin else ""
        output.show(f"{name} = {json.dumps(value)}{suffix}")
