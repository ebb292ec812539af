"""Merge recipe, file and command line into a checked configuration; each value keeps
its origin.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from litebert.config import Options, Weight, preset
from litebert.errors import LitebertError, no_such_name
from litebert.files import Json, read_capped
from litebert.plugins import NameIn, Registry, plugins_used

Schema = TypeVar("Schema", bound=BaseModel)

# ---- values and where they were set --------------------------------------------------

# The origin of a value is a phrase for people, which run.json keeps: one of these;
# "recipe mrpc"; a file; "command line: train.steps=3"; "preset mini (recipe laptop)",
# with the origin of `model.preset`; "start MODEL".
DEFAULT = "default"
FLAG = "flag"
MEASURED = "measured here"
SUITED = "measured default"
TOKENIZER = "tokenizer"
_TYPED = "command line: "


def is_typed(origin: str) -> bool:
    """Whether a value was given on the command line or by a caller, or by a preset
    named there.

    >>> is_typed("command line: train.steps=3"), is_typed("preset mini (flag)"), is_typed("preset mini (recipe laptop)")
    (True, True, False)
    """  # noqa: E501
    if origin.startswith("preset "):
        origin = origin.partition("(")[2].removesuffix(")")
    return origin == FLAG or origin.startswith(_TYPED)


def name_in(origin: str | None, kind: Literal["recipe", "preset"]) -> str | None:
    """Return the name of the recipe or preset that a value comes from, or None.

    >>> name_in("preset mini (recipe laptop)", "preset"), name_in("recipe mrpc", "preset")
    ('mini', None)
    """
    return (
        origin.removeprefix(f"{kind} ").partition(" (")[0]
        if origin and origin.startswith(f"{kind} ")
        else None
    )


@dataclass(frozen=True)
class Setting:
    """A value, where it was set, and how it was written on a command line."""

    value: Json
    origin: str = FLAG
    word: str | None = None


Settings = dict[str, Setting]


def settings_from_toml(path: Path, *, origin: str | None = None) -> Settings:
    """Read a TOML file as dotted settings."""
    data = read_capped(path, 1 << 20, command="litebert recipes list")
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        again = "litebert recipes show quickstart"
        raise LitebertError(
            "LB-101", f"{path} is not valid TOML", received=error, next=again
        ) from error
    return {
        key: Setting(value, origin or str(path))
        for key, value in _flatten_table(table).items()
    }


def settings_from_words(words: Sequence[str]) -> Settings:
    """Read `key=value` words of a command line; a value that is not TOML is taken as
    text.
    """
    settings = {}
    for word in words:
        key, equals, text = map(str.strip, word.partition("="))
        if not equals or not key:
            what = "this word of the command line is not a setting"
            expected = "section.name=value, as in train.steps=9"
            raise LitebertError(
                "LB-102",
                what,
                received=word,
                expected=expected,
                next="litebert pretrain --help",
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            value = None if text == "null" else text
        settings[key] = Setting(value, f"{_TYPED}{word}", text)
    return settings


# ---- the configuration that follows from them ----------------------------------------


@dataclass(frozen=True)
class Resolved(Generic[Schema]):
    """A checked configuration with the origin of each dotted setting."""

    config: Schema
    origins: dict[str, str]

    def fill_measured(self, config: Schema) -> "Resolved[Schema]":
        """Return the configuration completed by measurements; changed settings get the
        origin `MEASURED`.
        """
        before = flatten(self.config)
        after = flatten(config)
        changed = {
            name: MEASURED for name, value in after.items() if before[name] != value
        }
        return Resolved(config, self.origins | changed)


def resolve(schema: type[Schema], *layers: Settings) -> Resolved[Schema]:
    """Merge settings, later layers over earlier ones, and check them against `schema`.

    `model.preset` sets all fields of the network; single fields override it.
    """
    fields = fields_of(schema)
    merged = _merge(layers, fields)
    # fine-tuning takes its start's network
    known = [*fields, *["model.preset"] * ("model.hidden_size" in fields)]
    if "model.preset" in known and (chosen := merged.pop("model.preset", None)):
        values = preset(str(chosen.value)).model_dump(mode="json")
        origin = f"preset {chosen.value} ({chosen.origin})"
        merged = {
            f"model.{name}": Setting(value, origin) for name, value in values.items()
        } | merged
    listing = (
        "litebert config list"
        f" {'finetune' if 'task' in schema.model_fields else 'pretrain'}"
    )
    for key, setting in merged.items():
        if key not in known:
            what = f"there is no setting {key} (from {setting.origin})"
            raise no_such_name("LB-103", what, key, known, next=listing)

    sections: dict[str, dict[str, Json]] = {
        section: {} for section in schema.model_fields
    }
    for key, setting in merged.items():
        section, _, name = key.partition(".")
        takes_text = fields[key].annotation in (str, str | None)
        is_text = isinstance(setting.value, str | None)
        # 2024 or 2024-01-01 for a text
        value = setting.word if takes_text and not is_text else None
        sections[section][name] = setting.value if value is None else value
    try:
        config = schema.model_validate(sections)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # without an index
        name = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        # a rule about several settings names them in its message; prefer one that was
        # typed
        if name not in merged:
            words = set(re.findall(r"\w+", str(first["msg"])))
            named = [
                key
                for key in merged
                if key.startswith(name) and key.rpartition(".")[2] in words
            ]
            name = (
                max(named, key=lambda key: is_typed(merged[key].origin), default=name)
                or "the configuration"
            )
        found = merged.get(name, Setting(name, DEFAULT))
        is_missing = first["type"] == "missing"
        what = (
            f"{name} is missing"
            if is_missing
            else f"{name} cannot have this value (from {found.origin})"
        )
        received = None if is_missing else repr(found.value)
        should = expected_value(first)
        raise LitebertError(
            "LB-104", what, received=received, expected=should, next=listing
        ) from error
    for registry, chosen_name, key in names_in(config):
        registry.require(chosen_name, setting=f"{key}={chosen_name}")
    origins = {key: merged[key].origin if key in merged else DEFAULT for key in fields}
    return Resolved(config, origins)


def _merge(layers: Sequence[Settings], fields: Mapping[str, FieldInfo]) -> Settings:
    """Return the settings of all layers, later ones over earlier ones.

    A field that is a table is merged entry by entry: `section.field.name` sets one.
    """
    merged = Settings()
    for layer in layers:
        for key, setting in layer.items():
            table, _, name = key.rpartition(".")
            entries: Json = {name: setting.value}
            if is_table(fields.get(key)):
                table = key
                entries = setting.value
            if not is_table(fields.get(table)) or not isinstance(entries, dict):
                merged[key] = setting
                continue
            before = merged[table].value if table in merged else fields[table].default
            assert isinstance(before, dict), "the field is a table"
            merged[table] = Setting(before | entries, setting.origin)
    return merged


def is_table(field: FieldInfo | None) -> bool:
    """Return whether a setting has entries of its own, by name."""
    return field is not None and get_origin(field.annotation) is dict


def names_in(config: BaseModel) -> list[tuple[Registry[Any], str, str]]:
    """Return the settings that are names in a registry: registry, name, setting."""
    values = flatten(config)
    names = list[tuple[Registry[Any], str, str]]()
    for setting, field in fields_of(type(config)).items():
        for note in field.metadata:
            if isinstance(note, NameIn):
                value = values[setting]
                chosen = list(value) if isinstance(value, dict) else [value]
                names += [(note.registry, str(name), setting) for name in chosen]
    return names


def flatten(config: BaseModel) -> dict[str, Json]:
    """Return a configuration as dotted names and values."""
    return _flatten_table(config.model_dump(mode="json"))


def difference(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[str]:
    """List the differences of two configurations, one line per setting: `train.seed: 1
    -> 2`.
    """
    names = sorted({*old, *new})
    return [
        f"{n}: {old.get(n)} -> {new.get(n)}" for n in names if old.get(n) != new.get(n)
    ]


def _flatten_table(table: Mapping[str, Json]) -> dict[str, Json]:
    """Return section.name and value for every section of a table; keys outside sections
    keep their names.
    """
    dotted: dict[str, Json] = {}
    for section, content in table.items():
        if isinstance(content, dict):
            dotted |= {f"{section}.{name}": value for name, value in content.items()}
        else:
            dotted[section] = content
    return dotted


def fields_of(schema: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the field of every setting by its dotted name; a configuration consists of
    sections of fields.
    """
    return {
        f"{name}.{field}": info
        for name, section in schema.model_fields.items()
        if isinstance(section.annotation, type)
        and issubclass(section.annotation, BaseModel)
        for field, info in section.annotation.model_fields.items()
    }


def plugins_of(config: BaseModel) -> tuple[str, ...]:
    """Return the plug-ins that added the names in a configuration."""
    return plugins_used((registry, name) for registry, name, _ in names_in(config))


# ---- what a setting may be, in words -------------------------------------------------

_KINDS: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list[str]: "a list of texts",
    tuple[str, ...]: 'a list of texts, ["…"]',
    tuple[float, ...]: "a list of numbers, [1, 2]",
    tuple[Weight, ...]: "a list of numbers, [1, 2]",
    Options: "values by name, {name = 1}",
    dict[str, float]: "numbers by name, {name = 1}",
}


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
            n,
            "required" if f.is_required() else repr(f.default),
            describe_allowed(f),
            f.description or "",
        )
        for n, f in fields_of(schema).items()
    ]


def describe_allowed(field: FieldInfo) -> str:
    """Describe the values that a setting may have.

    >>> from litebert.config import OptimConfig
    >>> describe_allowed(OptimConfig.model_fields["learning_rate"])
    'a number above 0, at most 10'
    >>> describe_allowed(OptimConfig.model_fields["schedule"])
    'official, linear or wsd'
    """
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    is_optional = len(kinds) < len(get_args(field.annotation))
    kind = kinds[0] if is_optional else field.annotation
    if get_origin(kind) is Literal:
        *names, last = map(str, get_args(kind))
        words = f"{', '.join(names)} or {last}" if names else last
    else:
        words = _KINDS[kind]
        for note in field.metadata:
            if isinstance(note, NameIn):
                words = f"{words}: the name of a {note.registry.noun}"
        phrases = {
            "gt": "above {:,}",
            "ge": "{:,} or more",
            "lt": "below {:,}",
            "le": "at most {:,}",
        }
        bounds = [
            (phrases[name], getattr(b, name))
            for name in phrases
            for b in field.metadata
            if hasattr(b, name)
        ]
        if limits := ", ".join(phrase.format(bound) for phrase, bound in bounds):
            # a number above 0; a number, 1 or more
            words += f"{',' if limits[0].isdigit() else ''} {limits}"
    return f"{words}, or null" if is_optional else words


def expected_value(error: ErrorDetails) -> str:
    """Return what a refused value should have been: `less than 50`."""
    return re.sub(
        r"^(Value error, |Input should be |\w+ should have )| after validation.*",
        "",
        error["msg"],
    )


def describe_invalid(error: ValueError) -> str:
    """Describe what is wrong with the first refused value of a record: `seed should be
    a valid integer`; of a check of ours, its message.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the content"
    return (
        f"{place}{' should be' if first['msg'].startswith('Input should be ') else ':'}"
        f" {expected_value(first)}"
    )
