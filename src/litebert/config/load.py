"""Merge recipe, file and command line into a checked configuration; each value says where it came from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from litebert.config.schema import preset
from litebert.errors import LitebertError, no_such_name
from litebert.files import Json, read_capped

Schema = TypeVar("Schema", bound=BaseModel)

# ---- values and where they were set ---------------------------------------------------------------------------------

OriginKind = Literal["default", "recipe", "preset", "file", "flag", "measured", "suited", "tokenizer", "start"]

_WORDS = {"flag": "command line: ", "recipe": "recipe ", "start": "start "}  # how an origin with a detail begins
_ALONE = {"measured": "measured here", "suited": "measured default"}


@dataclass(frozen=True)
class Origin:
    """Where a value was set: the word as typed, the recipe, the file, or the preset.

    `chosen_by` is the origin of `model.preset`, for a value from a preset.

    >>> str(Origin("flag", "train.steps=3"))
    'command line: train.steps=3'
    >>> str(Origin("preset", "mini", chosen_by=Origin("recipe", "laptop")))
    'preset mini (recipe laptop)'
    """

    kind: OriginKind = "default"
    detail: str = ""
    chosen_by: Origin | None = None

    @property
    def is_typed(self) -> bool:
        """Whether the value was given on the command line, or by a preset named there."""
        return self.kind == "flag" or (self.chosen_by is not None and self.chosen_by.is_typed)

    def __str__(self) -> str:
        """Write the origin as run.json keeps it and people read it."""
        if self.kind == "preset":
            return f"preset {self.detail} ({self.chosen_by})"
        return _WORDS.get(self.kind, "") + self.detail if self.detail else _ALONE.get(self.kind, self.kind)

    @classmethod
    def read(cls, text: str) -> Origin:
        """Parse what `str` wrote, in this version or an older one; other words name a file.

        >>> all(Origin.read(str(o)) == o for o in (
        ...     Origin(), Origin("flag"), Origin("flag", "a.b=1"), Origin("file", "my.toml"),
        ...     Origin("measured"), Origin("preset", "mini", Origin("recipe", "laptop"))))
        True
        """
        if text.startswith("preset ") and text.endswith(")"):
            name, _, chosen_by = text.removeprefix("preset ").removesuffix(")").partition(" (")
            return cls("preset", name, cls.read(chosen_by))
        for kind in get_args(OriginKind):
            if text == _ALONE.get(kind, kind):
                return cls(kind)
            if kind in _WORDS and text.startswith(_WORDS[kind]):
                return cls(kind, text.removeprefix(_WORDS[kind]))
        return cls("file", text)


@dataclass(frozen=True)
class Setting:
    """A value and where it was set."""

    value: Json
    origin: Origin


Settings = dict[str, Setting]


def settings_from_toml(path: Path, *, origin: Origin | None = None) -> Settings:
    """Read a TOML file as dotted settings."""
    data = read_capped(path, 1 << 20, command="litebert recipes list")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        again = "litebert recipes show quickstart"
        raise LitebertError("LB-101", f"{path} is not valid TOML", received=error, next=again) from error
    source = origin or Origin("file", str(path))
    return {key: Setting(value, source) for key, value in _flattened(table)}


def settings_from_words(words: Sequence[str]) -> Settings:
    """Read `key=value` words of a command line; a value that is not TOML is a text."""
    settings = {}
    for word in words:
        key, equals, text = map(str.strip, word.partition("="))
        if not equals or not key:
            what, expected = "this word of the command line is not a setting", "section.name=value, as in train.steps=9"
            raise LitebertError("LB-102", what, received=word, expected=expected, next="litebert pretrain --help")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = None if text == "null" else text
        settings[key] = Setting(value, Origin("flag", word))
    return settings


# ---- the configuration that follows from them -----------------------------------------------------------------------


@dataclass(frozen=True)
class Resolved(Generic[Schema]):
    """A checked configuration with the origin of each dotted setting."""

    config: Schema
    origins: dict[str, Origin]


def resolve(schema: type[Schema], *layers: Settings) -> Resolved[Schema]:
    """Merge settings, later layers over earlier ones, and check them against `schema`.

    `model.preset` stands for all fields of that network; single fields override it.
    """
    merged = {key: value for layer in layers for key, value in layer.items()}
    if chosen := merged.pop("model.preset", None):
        values = preset(str(chosen.value)).model_dump(mode="json")
        origin = Origin("preset", str(chosen.value), chosen_by=chosen.origin)
        merged = {f"model.{name}": Setting(value, origin) for name, value in values.items()} | merged
    known = dict(_fields(schema))
    listing = f"litebert config list {'finetune' if 'task' in schema.model_fields else 'pretrain'}"
    for key, setting in merged.items():
        if key not in known:
            what = f"there is no setting {key} (from {setting.origin})"
            raise no_such_name("LB-103", what, key, [*known, "model.preset"], next=listing)

    # Nested tables as pydantic reads them; a section without settings is an empty table.
    root: dict[str, Json] = {}
    for key in known:
        *sections, name = key.split(".")
        table = root
        for section in sections:
            table = table.setdefault(section, {})  # type: ignore[assignment]
        if key in merged:
            table[name] = merged[key].value
    try:
        config = schema.model_validate(root)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))  # of a list, the whole
        if name not in merged:  # a rule about several settings names them in its message; a typed one comes first
            words = set(re.findall(r"\w+", str(first["msg"])))
            named = [key for key in merged if key.startswith(name) and key.rpartition(".")[2] in words]
            name = max(named, key=lambda key: merged[key].origin.is_typed, default=name) or "the configuration"
        found = merged.get(name, Setting(name, Origin()))
        is_missing = first["type"] == "missing"
        what = f"{name} is missing" if is_missing else f"{name} cannot have this value (from {found.origin})"
        received, should = None if is_missing else repr(found.value), expected(error)
        raise LitebertError("LB-104", what, received=received, expected=should, next=listing) from error
    return Resolved(config, {key: merged[key].origin if key in merged else Origin() for key in known})


def flattened(config: BaseModel) -> dict[str, Json]:
    """Return a configuration as dotted names and values."""
    return dict(_flattened(config.model_dump(mode="json")))


def difference(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[str]:
    """Say in one line per setting how two configurations differ: `train.seed: 1 -> 2`."""
    names = sorted({*old, *new})
    return [f"{n}: {old.get(n)} -> {new.get(n)}" for n in names if old.get(n) != new.get(n)]


RETIRED: dict[str, Json] = {
    "replaced.depth": None, "replaced.weight": 50.0, "distil.relations": 0.0, "distil.logits": 0.0,
    "train.spike_sigma": None, "elastic.teaching": 0.0, "elastic.least_depth": None, "mining.pool": 1,
    "ramp.shares": None, "ramp.seq_lengths": None, "ramp.batch_sizes": None, "optim.layer_decay": 1.0,
    "distil.short_text_prob": 0.3, "teacher.hidden": 0.0, "data.train_split": None,
}  # fmt: skip
"""Settings of earlier versions that are gone, with the value that did nothing."""


def _fields(schema: type[BaseModel], prefix: str = "") -> Iterable[tuple[str, FieldInfo]]:
    for name, field in schema.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _flattened(table: Mapping[str, Json], prefix: str = "") -> Iterable[tuple[str, Json]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


# ---- what a setting may be, in words --------------------------------------------------------------------------------

_KINDS: dict[object, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", list[str]: "a list of texts",
    tuple[str, ...]: 'a list of texts, ["…"]', tuple[float, ...]: "a list of numbers, [1, 2]",
}  # fmt: skip


@dataclass(frozen=True)
class Description:
    """What `litebert config list` shows of a setting."""

    name: str
    default: str
    allowed: str
    description: str


def describe(schema: type[BaseModel]) -> list[Description]:
    """Describe every setting by its dotted name."""
    found = []
    for name, field in _fields(schema):
        default = "required" if field.is_required() else repr(field.default)
        found.append(Description(name, default, allowed(field), field.description or ""))
    return found


def allowed(field: FieldInfo) -> str:
    """Describe the values that a setting may have.

    >>> from litebert.config import OptimConfig
    >>> allowed(OptimConfig.model_fields["learning_rate"])
    'a number above 0, at most 10'
    >>> allowed(OptimConfig.model_fields["schedule"])
    'official, linear or wsd'
    """
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    is_optional = len(kinds) < len(get_args(field.annotation))
    kind = kinds[0] if is_optional else field.annotation
    if get_origin(kind) is Literal:
        *names, last = map(str, get_args(kind))
        words = f"{', '.join(names)} or {last}" if names else last
    else:
        other = "a list" if get_origin(kind) in (list, tuple) else "a value of another kind"
        words = _KINDS.get(kind, other)
        phrases = {"gt": "above {:,}", "ge": "{:,} or more", "lt": "below {:,}", "le": "at most {:,}"}
        bounds = [(phrases[name], getattr(b, name)) for name in phrases for b in field.metadata if hasattr(b, name)]
        if limits := ", ".join(phrase.format(bound) for phrase, bound in bounds):
            words += f"{',' if limits[0].isdigit() else ''} {limits}"  # a number above 0; a number, 1 or more
    return f"{words}, or null" if is_optional else words


def expected(error: ValidationError) -> str:
    """Return what the first refused value of a model should have been, in pydantic's words, without the value."""
    return wanted(error.errors(include_url=False)[0])


def wanted(error: ErrorDetails) -> str:
    """Return what a refused value should have been: `less than 50`."""
    return error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")


def refused(error: ValidationError) -> str:
    """Say what is wrong with the first refused value of a record: `seed should be a valid integer`."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the content"
    return f"{place}{' should be' if first['msg'].startswith('Input should be ') else ':'} {wanted(first)}"
