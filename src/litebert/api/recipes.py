"""The recipes that come with the package: TOML files that say their data, hardware and result."""

from __future__ import annotations

from importlib.resources import as_file
from importlib.resources import files as package_files
from pathlib import Path

from litebert.config import Origin, Setting, Settings, settings_from_toml
from litebert.errors import no_such_name
from litebert.files import require_absent, write_text

KINDS = ("pretrain", "finetune")


def list_recipes() -> dict[str, dict[str, str]]:
    """Return the first line of every recipe by kind and name."""
    return {kind: {name: recipe(name).splitlines()[0].lstrip("# ") for name in recipe_names(kind)} for kind in KINDS}


def recipe_names(*kinds: str) -> list[str]:
    """Name the recipes of some kinds, or of all; names are unique across kinds.

    >>> "paper-base" in recipe_names("pretrain")
    True
    """
    root = package_files("litebert") / "recipes"
    entries = [entry for kind in kinds or KINDS for entry in (root / kind).iterdir()]
    names = [entry.name for entry in entries if entry.name.endswith(".toml")]
    return sorted(name.removesuffix(".toml") for name in names)


def recipe(name: str) -> str:
    """Return a recipe's TOML.

    Raises:
        LitebertError: LB-522, no recipe has this name.
    """
    if name not in recipe_names():
        raise no_such_name("LB-522", "no recipe has this name", name, recipe_names(), next="litebert recipes list")
    kind = next(kind for kind in KINDS if name in recipe_names(kind))
    path = package_files("litebert") / "recipes" / kind / f"{name}.toml"
    return path.read_text(encoding="utf-8")


def copy_recipe(name: str, target: str | Path, *, force: bool = False) -> Path:
    """Write a recipe to a file, to be changed and passed as `recipe`.

    Raises:
        LitebertError: LB-521, the file exists.
    """
    target, text = Path(target), recipe(name)
    if not force:
        require_absent(
            "LB-521",
            "the file to copy to exists",
            target,
            expected="a new file, or --force",
            next=f"litebert recipes copy {name} another-name.toml",
        )
    write_text(target, text)
    return target


def recipe_settings(kind: str, name: str) -> Settings:
    """Return the settings of a recipe of one kind, or of a TOML file.

    A task that another package registered needs no recipe: it gets the default settings.
    """
    from litebert.tasks import registry  # needs torch

    if name not in recipe_names(kind) and Path(name).suffix == ".toml":
        return settings_from_toml(Path(name))
    if kind == "finetune" and name not in recipe_names(kind) and name in registry.DATASETS:
        return {"task.name": Setting(name, Origin("recipe", name))}
    recipe(name)  # raises for an unknown name
    with as_file(package_files("litebert") / "recipes" / kind / f"{name}.toml") as path:
        return settings_from_toml(path, origin=Origin("recipe", name))
