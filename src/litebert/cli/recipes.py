"""litebert recipes: the packaged configurations, each with its data, hardware and result."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.output import note, show, show_json


@click.group()
def recipes() -> None:
    """List, show or copy the packaged recipes.

    \b
    litebert recipes show laptop
    litebert recipes copy paper-base my-recipe.toml
    """


@recipes.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_all(as_json: bool) -> None:
    """List the recipes with their first line.

    \b
    litebert recipes list
    litebert recipes list --json
    """
    from litebert.api.recipes import list_recipes

    rows = list_recipes()
    if as_json:
        show_json(rows, indent=2)
        return
    for kind, lines in rows.items():
        show(f"{kind}:")
        for name, summary in lines.items():
            show(f"  {name:<16}  {summary}")


@recipes.command("show")
@click.argument("name")
def show_recipe(name: str) -> None:
    """Print a recipe.

    \b
    litebert recipes show laptop
    litebert recipes show mrpc
    """
    from litebert.api.recipes import recipe

    show(recipe(name).rstrip("\n"))


@recipes.command("copy")
@click.argument("name")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def copy(name: str, target: Path, force: bool) -> None:
    """Write a recipe to a file, which you can change and pass to --recipe.

    \b
    litebert recipes copy laptop my-recipe.toml
    litebert recipes copy mrpc my-mrpc.toml --force
    """
    from litebert.api.recipes import copy_recipe

    copy_recipe(name, target, force=force)
    note(f"{target}: a copy of {name}; change it, then pass it to --recipe")
