"""Turn a caller's arguments into settings and paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from litebert.config import Origin, Setting, Settings, settings_from_words
from litebert.errors import LitebertError
from litebert.files import Json

Overrides: TypeAlias = Mapping[str, Json] | Sequence[str]
"""`{"train.steps": 1000}`, or words as in the shell: `["train.steps=1000"]`."""

Paths: TypeAlias = str | Path | Sequence[str | Path]


def flags(values: Mapping[str, Json]) -> Settings:
    """Return arguments as settings; None means that one was not given."""
    return {
        name: Setting(value, Origin("flag")) for name, value in values.items() if value is not None
    }


def overrides(given: Overrides) -> Settings:
    """Return dotted settings.

    >>> overrides({"train.steps": 5})["train.steps"].value
    5
    """
    return flags(given) if isinstance(given, Mapping) else settings_from_words(given)


def paths(given: Paths) -> list[str]:
    """Return one path or several as a list.

    >>> paths("a.txt"), paths(["a.txt", "b.txt"])
    (['a.txt'], ['a.txt', 'b.txt'])
    """
    return [str(given)] if isinstance(given, str | Path) else [str(path) for path in given]


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
