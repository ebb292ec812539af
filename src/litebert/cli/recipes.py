"""litebert recipes: configurations that come along, each with its data, hardware and result."""

from __future__ import annotations

import json
from importlib.resources import as_file
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.errors import LitebertError, did_you_mean
from litebert.files import write_text

if TYPE_CHECKING:
    from litebert.config import Settings

KINDS = ("pretrain", "finetune")


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
    rows = {
        kind: {name: recipe_text(name).splitlines()[0].lstrip("# ") for name in recipe_names(kind)}
        for kind in KINDS
    }
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for kind, lines in rows.items():
        click.echo(f"{kind}:")
        for name, summary in lines.items():
            click.echo(f"  {name:<16}  {summary}")


@recipes.command("show")
@click.argument("name")
def show(name: str) -> None:
    """Print a recipe."""
    click.echo(recipe_text(name), nl=False)


@recipes.command("copy")
@click.argument("name")
@click.argument("target", type=click.Path(path_type=Path))
def copy(name: str, target: Path) -> None:
    """Write a recipe to a file, to be changed and given to --recipe of its verb."""
    if target.exists():
        raise LitebertError(
            "LB-521",
            "the file to copy to exists",
            received=str(target),
            expected="a new file",
            next=f"litebert recipes copy {name} another-name.toml",
        )
    write_text(target, recipe_text(name))


def recipe_names(*kinds: str) -> list[str]:
    """Name the recipes of some kinds, or of all; no two have one name."""
    root = package_files("litebert") / "recipes"
    entries = [entry for kind in kinds or KINDS for entry in (root / kind).iterdir()]
    return sorted(entry.name.removesuffix(".toml") for entry in entries)


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
    kind = next(kind for kind in KINDS if name in recipe_names(kind))
    path = package_files("litebert") / "recipes" / kind / f"{name}.toml"
    return path.read_text(encoding="utf-8")


def recipe_settings(kind: str, name: str) -> Settings:
    """Return the settings of a recipe of one kind, or of a TOML file."""
    from litebert.config import Origin, settings_from_toml

    if name not in recipe_names(kind) and Path(name).suffix == ".toml":
        return settings_from_toml(Path(name))
    recipe_text(name)  # says which names there are
    with as_file(package_files("litebert") / "recipes" / kind / f"{name}.toml") as path:
        return settings_from_toml(path, origin=Origin("recipe", name))
