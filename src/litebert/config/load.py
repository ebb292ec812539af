"""Merge recipe, file and command line into a checked configuration; each value says where it came from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from litebert.config.allowed import allowed, expected
from litebert.config.schema import preset
from litebert.errors import LitebertError, no_such_name
from litebert.files import Json, read_capped

OriginKind = Literal["default", "recipe", "preset", "file", "flag", "measured", "suited", "tokenizer", "start"]

_WORDS = {"flag": "command line: ", "recipe": "recipe ", "start": "start "}
"""How the text of an origin with a detail begins."""
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
        if not self.detail:
            return _ALONE.get(self.kind, self.kind)
        return _WORDS.get(self.kind, "") + self.detail

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


Schema = TypeVar("Schema", bound=BaseModel)


@dataclass(frozen=True)
class Setting:
    """A value and where it was set."""

    value: Json
    origin: Origin


Settings = dict[str, Setting]


@dataclass(frozen=True)
class Resolved(Generic[Schema]):
    """A checked configuration with the origin of each dotted setting."""

    config: Schema
    origins: dict[str, Origin]


def settings_from_toml(path: Path, *, origin: Origin | None = None) -> Settings:
    """Read a TOML file as dotted settings.

    Raises:
        LitebertError: LB-101, it is not valid TOML.
    """
    data = read_capped(path, 1 << 20, command="litebert recipes list")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LitebertError(
            "LB-101",
            f"{path} is not valid TOML",
            received=str(error),
            expected="lines such as `learning_rate = 0.001` under headings such as `[optim]`",
            next="litebert recipes show quickstart",
        ) from error
    source = origin or Origin("file", str(path))
    return {key: Setting(value, source) for key, value in _flattened(table)}


def settings_from_words(words: Sequence[str]) -> Settings:
    """Read `key=value` words of a command line.

    >>> settings_from_words(["optim.learning_rate=2e-5"])["optim.learning_rate"].value
    2e-05
    """
    settings = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise LitebertError(
                "LB-102",
                "this word of the command line is not a setting",
                received=word,
                expected="section.name=value, such as optim.learning_rate=2e-5",
                next="litebert pretrain --help",
            )
        settings[key.strip()] = Setting(_toml_value(text.strip()), Origin("flag", word))
    return settings


def resolve(schema: type[Schema], *layers: Settings) -> Resolved[Schema]:
    """Merge settings, later layers over earlier ones, and check them against `schema`.

    `model.preset` stands for all fields of that network; single fields override it.

    Raises:
        LitebertError: LB-103, there is no such setting; LB-104, a value is missing or not allowed.
    """
    merged = _with_preset({key: value for layer in layers for key, value in layer.items()})
    known = dict(_fields(schema))
    for key, setting in merged.items():
        require_kept({key: setting.value})
        if key not in known:
            raise no_such_name(
                "LB-103",
                f"there is no setting {key} (from {setting.origin})",
                key,
                [*known, "model.preset"],
                next=_listing(schema),
            )
    try:
        config = schema.model_validate(_nested(known, merged))
    except ValidationError as error:
        raise _explained(error, merged, schema) from error
    return Resolved(config, {k: merged[k].origin if k in merged else Origin() for k in known})


def flattened(config: BaseModel) -> dict[str, Json]:
    """Return a configuration as dotted names and values."""
    return dict(_flattened(config.model_dump(mode="json")))


def difference(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[str]:
    """Say in one line per setting how two configurations differ.

    >>> difference({"train.seed": 1}, {"train.seed": 2})
    ['train.seed: 1 -> 2']
    """
    names = sorted({*old, *new})
    return [f"{n}: {old.get(n)} -> {new.get(n)}" for n in names if old.get(n) != new.get(n)]


RETIRED: dict[str, Json] = {
    "replaced.depth": None,
    "replaced.weight": 50.0,
    "elastic.teaching": 0.0,
    "distil.relations": 0.0,
    "distil.logits": 0.0,
    "train.spike_sigma": None,
}
"""Settings of earlier versions that brought no gain and are gone, with the value that did nothing."""
RETIRED_SENTENCES = ("contrast", "document", "shuffle")


def require_kept(settings: Mapping[str, Json]) -> None:
    """Raise LB-103 if a setting of an earlier version acts that no longer exists."""
    for key, value in settings.items():
        is_gone = key in RETIRED and value != RETIRED[key]
        if is_gone or (key == "objective.sentence" and value in RETIRED_SENTENCES):
            raise LitebertError(
                "LB-103",
                f"{key}={value} is no longer part of litebert: it brought no gain (docs/study.md)",
                next=f"omit {key}; a run that was begun with it ends with the version in its run.json",
            )


def without_retired(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return the recorded settings that still exist; one that acted and is gone raises LB-103."""
    require_kept(settings)
    return {key: value for key, value in settings.items() if key not in RETIRED}


@dataclass(frozen=True)
class Description:
    """What `litebert config list` shows of a setting."""

    name: str
    default: str
    allowed: str
    description: str


def describe(schema: type[BaseModel]) -> list[Description]:
    """Describe every setting by its dotted name."""
    return [
        Description(
            name, "required" if field.is_required() else repr(field.default), allowed(field), field.description or ""
        )
        for name, field in _fields(schema)
    ]


def _fields(schema: type[BaseModel], prefix: str = "") -> Iterable[tuple[str, FieldInfo]]:
    for name, field in schema.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _with_preset(settings: Settings) -> Settings:
    chosen = settings.get("model.preset")
    if chosen is None:
        return settings
    values = preset(str(chosen.value)).model_dump(mode="json")
    origin = Origin("preset", str(chosen.value), chosen_by=chosen.origin)
    expanded = {f"model.{name}": Setting(value, origin) for name, value in values.items()}
    return expanded | {key: value for key, value in settings.items() if key != "model.preset"}


def _explained(error: ValidationError, settings: Settings, schema: type[BaseModel]) -> LitebertError:
    """Turn pydantic's first error into ours."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if name not in settings:
        name = _named_in(str(first["msg"]), name, settings) or name or "the configuration"
    origin = settings[name].origin if name in settings else Origin()
    missing = first["type"] == "missing"
    return LitebertError(
        "LB-104",
        f"{name} is missing" if missing else f"{name} cannot have this value (from {origin})",
        received="nothing" if missing else repr(settings[name].value if name in settings else name),
        expected=expected(error, schema),
        next=_listing(schema),
    )


def _named_in(message: str, section: str, settings: Settings) -> str | None:
    """Return a setting that the message of a rule about several names, a typed one first."""
    words = set(re.findall(r"\w+", message))
    named = [name for name in settings if name.startswith(section) and name.rpartition(".")[2] in words]
    return max(named, key=lambda name: settings[name].origin.is_typed, default=None)


def _listing(schema: type[BaseModel]) -> str:
    """Return the command that lists the settings of a schema."""
    return f"litebert config list {'finetune' if 'task' in schema.model_fields else 'pretrain'}"


def _toml_value(text: str) -> Json:
    try:
        return tomllib.loads(f"value = {text}")["value"]  # type: ignore[no-any-return]
    except tomllib.TOMLDecodeError:
        return None if text == "null" else text


def _flattened(table: Mapping[str, Json], prefix: str = "") -> Iterable[tuple[str, Json]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _nested(known: Iterable[str], settings: Settings) -> dict[str, Json]:
    """Return nested tables as pydantic reads them; a section without settings is an empty table."""
    root: dict[str, Json] = {}
    for key in known:
        *sections, name = key.split(".")
        table = root
        for section in sections:
            table = table.setdefault(section, {})  # type: ignore[assignment]
        if key in settings:
            table[name] = settings[key].value
    return root
