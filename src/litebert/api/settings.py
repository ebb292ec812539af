"""The arguments of callers as settings and paths; the packaged recipes; what settings there are, and what a run has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import as_file
from importlib.resources import files as package_files
from numbers import Integral
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_type_hints

from pydantic import JsonValue, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from litebert.answers import Shown
from litebert.config import (
    FinetuneConfig,
    Origin,
    PretrainConfig,
    Setting,
    Settings,
    describe,
    settings_from_toml,
    settings_from_words,
)
from litebert.config.load import Description
from litebert.errors import LitebertError, no_such_name
from litebert.files import require_new, write_text
from litebert.runs import Run

Overrides: TypeAlias = Mapping[str, JsonValue] | Sequence[str]
"""`{"train.steps": 1000}`, or words as in the shell: `["train.steps=1000"]`."""

Paths: TypeAlias = str | Path | Sequence[str | Path]
A_PATH = "a path, or a list of paths"


def flags(values: Mapping[str, JsonValue]) -> Settings:
    """Return arguments as settings; None means that one was not given."""
    return {name: Setting(value, Origin("flag")) for name, value in values.items() if value is not None}


def overrides(given: Overrides) -> Settings:
    """Return dotted settings.

    >>> overrides({"train.steps": 5})["train.steps"].value
    5
    """
    if isinstance(given, Mapping):
        return flags(given)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise _wrong_type("settings", given, '{"train.steps": 5}, or ["train.steps=5"]')
    return settings_from_words(given)


def require_types(signature: Callable[..., object], values: Mapping[str, object]) -> None:
    """Check arguments against the annotations of a function; settings are checked where they are read."""
    unchecked = {"Overrides": object, "Precision": object}
    for name, hint in get_type_hints(signature, localns=unchecked).items():
        if name not in values:
            continue
        try:
            TypeAdapter[object](hint).validate_python(as_paths(values[name]), strict=True)
        except ValidationError as error:
            annotation = signature.__annotations__[name]
            plain = re.match(r"Annotated\[(.+?), (?:['\"]|[A-Z]\w*\()", annotation)
            raise _wrong_type(name, values[name], plain[1] if plain else annotation, signature.__name__) from error


def _wrong_type(name: str, value: object, annotation: str, called: str = "pretrain") -> LitebertError:
    return LitebertError(
        "LB-533",
        f"{name} cannot be of this type",
        received=f"{value!r:.100} ({type(value).__name__})",
        expected={"Paths": A_PATH, "Texts": A_PATH, "Models": A_PATH}.get(annotation, annotation),
        next=f"help(litebert.{called})",
    )


def as_paths(given: object) -> object:
    """Return what stands for a folder, such as a run, as its path, and whole numbers of NumPy as Python's."""
    if isinstance(given, list | tuple):
        return type(given)(map(as_paths, given))
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    return Path(given) if isinstance(given, os.PathLike) else given


def paths(given: Paths) -> list[str]:
    """Return one path or several as a list.

    >>> paths("a.txt"), paths(["a.txt", "b.txt"])
    (['a.txt'], ['a.txt', 'b.txt'])
    """
    if isinstance(given, str | os.PathLike):
        return [os.fspath(given)]
    return [os.fspath(path) for path in given]


def run_folder(runs: str | Path, name: str) -> Path:
    """Return the folder of a run; a name that leads out of `runs` is refused."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or not name.isprintable():
        raise LitebertError(
            "LB-920",
            "a run cannot have this name",
            received=name,
            expected=f"the name of a folder below {runs}, such as mine or mine/first",
            next="choose another name, or another folder with --runs",
        )
    return Path(runs) / name


# ---- the recipes that come with the package: TOML files that say their data, hardware and result --------------------

RecipeKind = Literal["pretrain", "finetune"]
KINDS: tuple[RecipeKind, ...] = ("pretrain", "finetune")


def recipe_names(*kinds: str) -> list[str]:
    """Name the recipes of some kinds, or of all; names are unique across kinds.

    >>> "paper-base" in recipe_names("pretrain")
    True
    """
    root = package_files("litebert") / "recipes"
    names = [entry.name for kind in kinds or KINDS for entry in (root / kind).iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def recipe_settings(kind: str, name: str) -> Settings:
    """Return the settings of a recipe of one kind, or of a TOML file.

    A task that another package registered needs no recipe: it gets the default settings.
    """
    if name not in recipe_names(kind) and Path(name).suffix == ".toml":
        return settings_from_toml(Path(name))
    if kind == "finetune" and name not in recipe_names(kind):
        from litebert.tasks.named import DATASETS  # needs torch

        if name in DATASETS:
            return {"task.name": Setting(name, Origin("recipe", name))}
    recipe(name)  # refuses an unknown name
    with as_file(package_files("litebert") / "recipes" / kind / f"{name}.toml") as path:
        return settings_from_toml(path, origin=Origin("recipe", name))


def recipe(name: str) -> str:
    """Print a recipe.

    litebert recipes show laptop
    litebert recipes show mrpc
    """
    if name not in recipe_names():
        raise no_such_name("LB-522", "no recipe has this name", name, recipe_names(), next="litebert recipes list")
    kind = next(kind for kind in KINDS if name in recipe_names(kind))
    text = (package_files("litebert") / "recipes" / kind / f"{name}.toml").read_text(encoding="utf-8")
    return text.rstrip("\n")


def list_recipes() -> Shown[dict[str, dict[str, str]]]:
    """List the recipes with their first line.

    litebert recipes list
    litebert recipes list --json
    """
    found: dict[str, dict[str, str]] = {}
    lines = []
    for kind in KINDS:
        found[kind] = {name: recipe(name).splitlines()[0].lstrip("# ") for name in recipe_names(kind)}
        lines += [f"{kind}:", *(f"  {name:<16}  {summary}" for name, summary in found[kind].items())]
    return Shown(found, "\n".join(lines))


class Copied(TypedDict):
    """A recipe in a file of the user's."""

    name: str
    path: str


def copy_recipe(
    name: str, target: Path, *, force: Annotated[bool, "Replace the file if it exists."] = False
) -> Shown[Copied]:
    """Write a recipe to a file, which you can change and pass to --recipe.

    litebert recipes copy laptop my-recipe.toml
    litebert recipes copy mrpc my-mrpc.toml --force
    """
    text = recipe(name)
    require_new(Path(target), force=force)
    write_text(Path(target), f"{text}\n")
    note = f"{target}: a copy of {name}; change it, then pass it to --recipe"
    return Shown({"name": name, "path": str(target)}, "", (note,))


# ---- the settings there are, and those of a run ---------------------------------------------------------------------


def list_settings(kind: RecipeKind = "pretrain") -> Shown[list[Description]]:
    """List every setting of pretraining, or of fine-tuning, with its default and its meaning.

    litebert config list
    litebert config list finetune --json
    """
    found = list(describe(PretrainConfig if kind == "pretrain" else FinetuneConfig))
    width = max(len(row.name) for row in found)
    lines = [f"{row.name:<{width}}  {row.default:<14}  {row.description} ({row.allowed})" for row in found]
    return Shown(found, "\n".join(lines))


class SettingsOfRun(TypedDict):
    """The settings of a run, and where each value came from."""

    settings: dict[str, JsonValue]
    origins: dict[str, str]


def show_settings(
    run: Path, *, origin: Annotated[bool, "Say where each value came from."] = False
) -> Shown[SettingsOfRun]:
    """Show the settings a run was made with.

    litebert config show runs/mine --origin
    litebert config show runs/mrpc --json
    """
    opened = Run.open(run)
    origins = {name: str(each) for name, each in opened.file.origins.items()}
    lines = [
        f"{name} = {json.dumps(value)}" + (f"  # {origins.get(name, 'default')}" if origin else "")
        for name, value in opened.settings.items()
    ]
    return Shown({"settings": opened.file.settings, "origins": origins}, "\n".join(lines))
