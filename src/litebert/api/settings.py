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
from dataclasses import dataclass, field
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


def overrides(settings: Overrides) -> Settings:
    """Return settings by their dotted names, with paths as text.

    >>> overrides({"train.steps": 5})["train.steps"].value
    5
    """
    if not isinstance(settings, Mapping):
        return settings_from_words(settings)
    by_name = dict[str, Setting]()
    for name, value in settings.items():
        if isinstance(value, Setting):
            by_name[name] = value
        elif isinstance(value, os.PathLike):
            by_name[name] = Setting(os.fspath(value))
        else:
            by_name[name] = Setting(value)
    return by_name


def flags(values: Mapping[str, Any]) -> Settings:
    """Return arguments as settings; leave out any that is None, which means that it was
    not given.
    """
    present = {name: value for name, value in values.items() if value is not None}
    return overrides(present)


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

    for name, hint in get_type_hints(function, localns={"Precision": object}).items():
        if name not in values:
            continue
        adapter = TypeAdapter[object](hint, config=_ANY_CLASS)
        try:
            adapter.validate_python(_plain(values[name]), strict=True)
        except ValidationError as error:
            # classes are named without their modules
            expected = re.sub(
                r"\b[a-z_.]+\.(?=[A-Z])", "", inspect.formatannotation(hint)
            )
            expected = re.sub(r"\bFrame\b", "DataFrame", expected)
            kind = type(values[name]).__name__
            advice = f"help(litebert.{function.__name__})"
            if "DataFrame" in expected and isinstance(values[name], list | Mapping):
                advice = "make a table of these rows first: pandas.DataFrame(rows)"
            raise LitebertError(
                "LB-533",
                f"{name} cannot be of this type",
                received=f"{values[name]!r:.100} ({kind})",
                expected=expected,
                next=advice,
            ) from error


def _plain(value: object) -> object:
    """Return an argument as a strict check takes it: a run is its folder, and an integer
    of NumPy is an integer.
    """
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, os.PathLike):
        return Path(value)
    return value


def paths(one_or_more: Paths) -> list[str]:
    """Return one path or several as a list.

    >>> paths("a.txt"), paths(["a.txt", "b.txt"])
    (['a.txt'], ['a.txt', 'b.txt'])
    """
    if isinstance(one_or_more, str | os.PathLike):
        listed = [os.fspath(one_or_more)]
    else:
        listed = [os.fspath(path) for path in one_or_more]
    if "" in listed:
        raise LitebertError(
            "LB-538",
            "a path is empty",
            received=listed,
            next="give a file or folder; . is this folder",
        )
    return listed


# ---- progress ------------------------------------------------------------------------

FIRST_LINE = 3.0  # seconds until the first line, if stderr is not a terminal
LINE_EVERY = 10.0  # seconds between two lines
BAR_EVERY = 0.1  # seconds between two updates of the bar on a terminal


@dataclass
class _Progress:
    """Counts finished items, and shows them in a bar on a terminal, else in lines."""

    title: str
    total: int | None
    is_quiet: bool
    is_live: bool = field(default_factory=is_terminal)
    started: float = field(default_factory=time.monotonic)
    done: int = 0

    def __post_init__(self) -> None:
        self.due = self.started
        if not self.is_live:
            self.due += FIRST_LINE

    def advance(self, number: int) -> None:
        self.done += number
        now = time.monotonic()
        if self.is_quiet or now < self.due:
            return
        if self.is_live:
            self.due = now + BAR_EVERY
            done = self.done if self.total else 0
            show_status(done, self.total or 1, self.line())
        else:
            self.due = now + LINE_EVERY
            say(self.line())

    def line(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-9)
        rate = self.done / seconds  # items per second
        counted = f"{self.done:,}"
        left = ""
        if self.total is not None:
            counted += f"/{self.total:,}"
            num_left = max(0, self.total - self.done)
            if num_left and rate:
                left = f"  left {format_duration(num_left / rate)}"
        return f"{self.title}  {counted}{left}  {rate:,.0f}/s"


@contextmanager
def progress(
    title: str, *, total: int | None = None, is_quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts finished items; show them on stderr."""
    shown = _Progress(title, total, is_quiet)
    yield shown.advance
    if shown.is_live and shown.done and not is_quiet:
        say(shown.line())  # replaces the bar


# ---- packaged recipes: TOML files, with comments on data, hardware and results -------

RecipeKind = Literal["pretrain", "finetune"]


def recipes(kind: str = "*") -> dict[str, Path]:
    """Return the recipes of a kind, or of all, by name, with the recipes of plug-ins'
    tasks; names are unique across kinds.

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
    return settings_from_toml(_recipe(name, kind), recipe=name)


def _recipe(name: str, kind: str = "*") -> Path:
    paths_by_name = recipes(kind)
    if name not in paths_by_name:
        raise no_such_name(
            "LB-522",
            "no recipe has this name",
            name,
            paths_by_name,
            next="litebert recipes list",
        )
    return paths_by_name[name]


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
    summaries = dict[str, dict[str, str]]()
    lines = list[str]()
    for kind in ("pretrain", "finetune"):
        summaries[kind] = {}
        lines.append(f"{kind}:")
        for name in recipes(kind):
            first_line, _, _ = recipes_show(name).partition("\n")
            summary = first_line.lstrip("# ")
            summaries[kind][name] = summary
            lines.append(f"  {name:<16}  {summary}")
    return Shown(summaries, "\n".join(lines))


# ---- all settings, and those of a run ------------------------------------------------


def config_list(kind: RecipeKind = "pretrain") -> Shown[list[Description]]:
    """List every setting of pretraining, or of fine-tuning, with its default and its
    meaning.

    litebert config list
    litebert config list finetune
    """
    config = PretrainConfig if kind == "pretrain" else FinetuneConfig
    rows = list(describe(config))
    width = max(len(row.name) for row in rows)
    lines = list[str]()
    for row in rows:
        meaning = f"{row.description} ({row.allowed})"
        lines.append(f"{row.name:<{width}}  {row.default:<14}  {meaning}")
    return Shown(rows, "\n".join(lines))


class SettingsOfRun(TypedDict):
    settings: dict[str, JsonValue]
    origins: dict[str, str]


def config_show(run: Path) -> Shown[SettingsOfRun]:
    """Show the settings of a run, and where each value came from.

    litebert config show runs/mine
    litebert config show runs/mrpc --json
    """
    file = RunFolder.open(run).file
    lines = list[str]()
    for name, value in file.settings.items():
        origin = file.origins.get(name, "default")
        lines.append(f"{name} = {json.dumps(value)}  # {origin}")
    return Shown({"settings": file.settings, "origins": file.origins}, "\n".join(lines))
