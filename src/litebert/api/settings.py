"""Arguments of callers: settings, paths and their types; the packaged recipes; the
settings of a run; progress.
"""

import inspect
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.resources import files
from numbers import Integral
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    get_type_hints,
)

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from litebert.answers import Shown
from litebert.config import FinetuneConfig, PretrainConfig
from litebert.errors import (
    LitebertError,
    format_duration,
    is_terminal,
    no_such_name,
    say,
    show_status,
)
from litebert.plugins import DATASETS
from litebert.runs import RunFolder
from litebert.settings import (
    Description,
    Setting,
    Settings,
    describe,
    settings_from_toml,
    settings_from_words,
)

# `{"train.steps": 1000}`, or words as in the shell: `["train.steps=1000"]`
Overrides: TypeAlias = Mapping[str, Any] | Sequence[str]
Paths: TypeAlias = str | Path | Sequence[str | Path]
Runs = Annotated[str | Path, "Folder of the runs."]
Quiet = Annotated[bool, "Print no progress on stderr."]


def overrides(given: Overrides) -> Settings:
    """Return settings by their dotted names, with paths as text.

    >>> overrides({"train.steps": 5})["train.steps"].value
    5
    """
    if not isinstance(given, Mapping):
        return settings_from_words(given)
    texts = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in given.items()
    }
    return {
        name: value if isinstance(value, Setting) else Setting(value)
        for name, value in texts.items()
    }


def flags(values: Mapping[str, Any]) -> Settings:
    """Return arguments as settings; leave out any that is None, which means not
    given.
    """
    return overrides(
        {name: value for name, value in values.items() if value is not None}
    )


# such as a DataFrame, of which only the class is checked
_ANY_CLASS = ConfigDict(arbitrary_types_allowed=True)
P = ParamSpec("P")
Result = TypeVar("Result")


def checked(function: Callable[P, Result]) -> Callable[P, Result]:
    """Return a public function that checks its arguments: their names, and their
    types.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> Result:
        for name in named:
            if name not in signature.parameters:
                raise _no_argument(function, name, list(signature.parameters))
        require_types(function, signature.bind(*args, **named).arguments)
        return function(*args, **named)

    return call


def _no_argument(
    function: Callable[..., object], name: str, known: Sequence[str]
) -> LitebertError:
    """Return the error for a keyword that a function does not have; it may be the last
    part of a setting's name.
    """
    verb = function.__name__
    config = FinetuneConfig if verb == "finetune" else PretrainConfig
    settings = [row.name for row in describe(config)]
    meant = [setting for setting in settings if setting.endswith(f".{name}")]
    advice = f"help(litebert.{verb})"
    if meant and "settings" in known:
        advice = f'litebert.{verb}(..., settings={{"{meant[0]}": ...}})'
    return no_such_name(
        "LB-540", f"{verb} has no argument of this name", name, known, next=advice
    )


def require_types(
    function: Callable[..., object], values: Mapping[str, object]
) -> None:
    """Check arguments against the annotations of a function; settings are also checked
    where they are read.
    """

    # a run is given as its folder, and NumPy integers are integers, too
    def plain(given: object) -> object:
        if isinstance(given, list | tuple | range):
            return [plain(each) for each in given]
        if isinstance(given, Integral) and not isinstance(given, bool):
            return int(given)
        return Path(given) if isinstance(given, os.PathLike) else given

    for name, hint in get_type_hints(function, localns={"Precision": object}).items():
        if name in values:
            try:
                adapter = TypeAdapter[object](hint, config=_ANY_CLASS)
                adapter.validate_python(plain(values[name]), strict=True)
            except ValidationError as error:
                expected: str = re.sub(
                    r"\b[a-z_.]+\.(?=[A-Z])", "", inspect.formatannotation(hint)
                )
                what = f"{name} cannot be of this type"
                advice = f"help(litebert.{function.__name__})"
                received = f"{values[name]!r:.100} ({type(values[name]).__name__})"
                raise LitebertError(
                    "LB-533", what, received=received, expected=expected, next=advice
                ) from error


def paths(given: Paths) -> list[str]:
    """Return one path or several as a list.

    >>> paths("a.txt"), paths(["a.txt", "b.txt"])
    (['a.txt'], ['a.txt', 'b.txt'])
    """
    found = [
        os.fspath(path)
        for path in ([given] if isinstance(given, str | os.PathLike) else given)
    ]
    if "" in found:
        raise LitebertError(
            "LB-538",
            "a path is empty",
            received=found,
            next="give a file or folder; . is this folder",
        )
    return found


@contextmanager
def progress(
    title: str, *, total: int | None = None, is_quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts finished items; show them on stderr, in a bar on a
    terminal, else in lines.
    """
    is_live = is_terminal()
    started = time.monotonic()
    done = 0
    due = started + (0 if is_live else 3)  # seconds

    def line() -> str:
        rate = done / max(time.monotonic() - started, 1e-9)  # items per second
        rest = max(0, (total or 0) - done)
        left = f"  left {format_duration(rest / rate)}" if rest and rate else ""
        return (
            f"{title}  {done:,}{'' if total is None else f'/{total:,}'}{left} "
            f" {rate:,.0f}/s"
        )

    def advance(number: int) -> None:
        nonlocal done, due
        done += number
        if is_quiet or (now := time.monotonic()) < due:
            return
        due = now + (0.1 if is_live else 10)
        (
            show_status(done if total else 0, total or 1, line())
            if is_live
            else say(line())
        )

    yield advance
    if is_live and done and not is_quiet:
        say(line())  # replaces the bar


# ---- packaged recipes: TOML files, with comments on data, hardware and results -------

RecipeKind = Literal["pretrain", "finetune"]


def recipes(kind: str = "*") -> dict[str, Path]:
    """Return the recipes of a kind, or of all, by name, with those of plug-ins' tasks;
    names are unique across kinds.

    >>> "paper-base" in recipes("pretrain")
    True
    """
    packaged = Path(str(files("litebert"))).glob(f"recipes/{kind}/*.toml")
    paths = {path.stem: path for path in sorted(packaged)}
    if kind != "pretrain":
        for name, dataset in DATASETS.from_plugins().items():
            if dataset.recipe is not None:
                paths[name] = dataset.recipe
    return paths


def recipe_settings(kind: RecipeKind, name: str) -> Settings:
    """Return the settings of a recipe of one kind, or of a TOML file.

    A task of a plug-in needs no recipe: without one, it gets the default settings.
    """
    if Path(name).suffix == ".toml":
        return settings_from_toml(Path(name))
    if kind == "finetune" and name in DATASETS and name not in recipes(kind):
        return {}
    return settings_from_toml(_recipe(name, kind), origin=f"recipe {name}")


def _recipe(name: str, kind: str = "*") -> Path:
    found = recipes(kind)
    if name not in found:
        raise no_such_name(
            "LB-522",
            "no recipe has this name",
            name,
            found,
            next="litebert recipes list",
        )
    return found[name]


def recipes_show(name: str) -> str:
    """Print a recipe.

    litebert recipes show mrpc
    litebert recipes show laptop > mine.toml
    """
    return _recipe(name).read_text(encoding="utf-8").rstrip("\n")


def recipes_list() -> Shown[dict[str, dict[str, str]]]:
    """List the recipes with a line about each.

    litebert recipes list
    litebert recipes list --json
    """
    found = dict[str, dict[str, str]]()
    lines = list[str]()
    for kind in ("pretrain", "finetune"):
        found[kind] = {
            name: recipes_show(name).splitlines()[0].lstrip("# ")
            for name in recipes(kind)
        }
        lines += [
            f"{kind}:",
            *(f"  {name:<16}  {summary}" for name, summary in found[kind].items()),
        ]
    return Shown(found, "\n".join(lines))


# ---- all settings, and those of a run ------------------------------------------------


def config_list(kind: RecipeKind = "pretrain") -> Shown[list[Description]]:
    """List every setting of pretraining, or of fine-tuning, with its default and its
    meaning.

    litebert config list
    litebert config list finetune
    """
    found = list(describe(PretrainConfig if kind == "pretrain" else FinetuneConfig))
    width = max(len(row.name) for row in found)
    lines = [
        f"{row.name:<{width}}  {row.default:<14}  {row.description} ({row.allowed})"
        for row in found
    ]
    return Shown(found, "\n".join(lines))


class SettingsOfRun(TypedDict):
    settings: dict[str, JsonValue]
    origins: dict[str, str]


def config_show(run: Path) -> Shown[SettingsOfRun]:
    """Show the settings of a run, and where each value came from.

    litebert config show runs/mine
    litebert config show runs/mrpc --json
    """
    file = RunFolder.open(run).file
    origins = {name: file.origins.get(name, "default") for name in file.settings}
    lines = [
        f"{name} = {json.dumps(value)}  # {origins[name]}"
        for name, value in file.settings.items()
    ]
    return Shown({"settings": file.settings, "origins": file.origins}, "\n".join(lines))
