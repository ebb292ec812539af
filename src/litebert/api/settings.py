"""Turn a caller's arguments into settings and paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TypeAlias, get_type_hints

from pydantic import TypeAdapter, ValidationError

from litebert.config import Origin, Setting, Settings, settings_from_words
from litebert.errors import LitebertError
from litebert.files import Json

Overrides: TypeAlias = Mapping[str, Json] | Sequence[str]
"""`{"train.steps": 1000}`, or words as in the shell: `["train.steps=1000"]`."""

Paths: TypeAlias = str | Path | Sequence[str | Path]


def flags(values: Mapping[str, Json]) -> Settings:
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
    """Check arguments against the annotations of a function or of a dataclass.

    The names of closed choices and the settings are checked where they are looked up.

    Raises:
        LitebertError: LB-533, an argument is of another type.
    """
    unchecked = {"Overrides": object, "Precision": object}
    for name, hint in get_type_hints(signature, localns=unchecked).items():
        if name not in values:
            continue
        try:
            TypeAdapter[object](hint).validate_python(as_paths(values[name]), strict=True)
        except ValidationError as error:
            called = signature.__name__.removesuffix("Job").lower()
            raise _wrong_type(name, values[name], signature.__annotations__[name], called) from error


def _wrong_type(name: str, value: object, annotation: str, called: str = "pretrain") -> LitebertError:
    return LitebertError(
        "LB-533",
        f"{name} cannot be of this type",
        received=f"{value!r:.100} ({type(value).__name__})",
        expected={"Paths": "a path, or a list of paths"}.get(annotation, annotation),
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


def require_models(given: Paths) -> list[str]:
    """Return the models of a caller as a list.

    Raises:
        LitebertError: LB-534, there is none.
    """
    models = paths(given)
    if not models:
        raise LitebertError(
            "LB-534",
            "there is no model to ask",
            received="an empty list",
            expected="a run or a model folder, or several",
            next="litebert runs list",
        )
    return models


def run_folder(runs: str | Path, name: str) -> Path:
    """Return the folder of a run.

    Raises:
        LitebertError: LB-920, the name leads out of `runs`.
    """
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
