"""litebert recipes: configurations that come along, each with its data, hardware and result."""

from __future__ import annotations

import json
from importlib.resources import files as package_files
from pathlib import Path

import click

from litebert.errors import LitebertError, did_you_mean
from litebert.files import write_text


@click.group()
def recipes() -> None:
    """List, show or copy the recipes that come along.

    \b
    litebert recipes show laptop
    litebert recipes copy paper-base my-recipe.toml
    """


@recipes.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_recipes(as_json: bool) -> None:
    """List the recipes with their first line."""
    rows = {name: recipe_text(name).splitlines()[0].lstrip("# ") for name in recipe_names()}
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for name, summary in rows.items():
        click.echo(f"{name:<16}  {summary}")


@recipes.command("show")
@click.argument("name")
def show(name: str) -> None:
    """Print a recipe."""
    click.echo(recipe_text(name), nl=False)


@recipes.command("copy")
@click.argument("name")
@click.argument("target", type=click.Path(path_type=Path))
def copy(name: str, target: Path) -> None:
    """Write a recipe to a file, to be changed and given to `litebert pretrain --recipe`."""
    if target.exists():
        raise LitebertError(
            "LB-521",
            "the file to copy to exists",
            received=str(target),
            expected="a new file",
            next=f"litebert recipes copy {name} another-name.toml",
        )
    write_text(target, recipe_text(name))


def recipe_names() -> list[str]:
    """Name all recipes."""
    folder = package_files("litebert") / "recipes" / "pretrain"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir())


def recipe_text(name: str) -> str:
    """Return a recipe's TOML."""
    if name not in recipe_names():
        raise LitebertError(
            "LB-522",
            "no recipe has this name",
            received=name,
            expected=did_you_mean(name, recipe_names()),
            next="litebert recipes list",
        )
    path = package_files("litebert") / "recipes" / "pretrain" / f"{name}.toml"
    return path.read_text(encoding="utf-8")
