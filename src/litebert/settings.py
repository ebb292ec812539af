"""Merge recipe, file and command line into a checked configuration; each value keeps
its origin.
"""

import difflib
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

from litebert.config import ContradictionError, Options, Weight, preset
from litebert.errors import LitebertError
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
    if not origin or not origin.startswith(f"{kind} "):
        return None
    return origin.removeprefix(f"{kind} ").partition(" (")[0]


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
        raise LitebertError(
            "LB-101",
            f"{path} is not valid TOML",
            received=error,
            next="litebert recipes show quickstart",
        ) from error
    source = origin or str(path)
    return {key: Setting(value, source) for key, value in _flatten_table(table).items()}


def settings_from_words(words: Sequence[str]) -> Settings:
    """Read `key=value` words of a command line; a value that is not TOML is taken as
    text.
    """
    settings = {}
    for word in words:
        key, equals, text = map(str.strip, word.partition("="))
        if not equals or not key:
            raise LitebertError(
                "LB-102",
                "this word of the command line is not a setting",
                received=word,
                expected="section.name=value, as in train.steps=9",
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
    known = [*fields]
    if "model.hidden_size" in fields:  # fine-tuning takes its start's network
        known.append(_PRESET)
    verb = "finetune" if "task" in schema.model_fields else "pretrain"
    listing = f"litebert config list {verb}"
    merged = _merge(layers, fields)
    _require_known(merged, known, listing)
    merged = _expand_preset(merged)
    try:
        config = schema.model_validate(_sections(schema, fields, merged))
    except ValidationError as error:
        raise _refused(error, merged, listing) from error
    for registry, name, key in names_in(config):
        registry.require(name, setting=f"{key}={name}")
    origins = dict.fromkeys(fields, DEFAULT)
    origins |= {key: setting.origin for key, setting in merged.items()}
    return Resolved(config, origins)


_PRESET = "model.preset"


def _require_known(merged: Settings, known: Sequence[str], listing: str) -> None:
    """Raise LB-103 for a setting that does not exist."""
    for key, setting in merged.items():
        if key not in known:
            what = f"there is no setting {key} (from {setting.origin})"
            raise LitebertError(
                "LB-103",
                what,
                received=key,
                expected=_likely_setting(key, known),
                next=listing,
            )


def _likely_setting(key: str, known: Sequence[str]) -> str:
    """Return a hint at the setting that was meant.

    Within its section, initials count, and the name without the section is compared:
    whole names are alike by their sections alone.

    >>> _likely_setting("optim.lr", ["optim.learning_rate", "optim.clip_norm"])
    'did you mean optim.learning_rate?'
    """
    almost = difflib.get_close_matches(key, known, n=1, cutoff=0.9)
    if almost:
        return f"did you mean {almost[0]}?"
    section, _, name = key.rpartition(".")
    of_section = dict[str, str]()
    for setting in known:
        its_section, _, its_name = setting.rpartition(".")
        if its_name == name:  # in another section
            return f"did you mean {setting}?"
        if section in ("", its_section):
            of_section[its_name] = setting
    for its_name, setting in of_section.items():
        words = its_name.split("_")
        if len(words) > 1 and name == "".join(word[0] for word in words):
            return f"did you mean {setting}?"
    near = difflib.get_close_matches(name, of_section, n=1, cutoff=0.6)
    if near:
        return f"did you mean {of_section[near[0]]}?"
    return f"one of {', '.join(sorted(of_section.values() or known))}"


def _expand_preset(merged: Settings) -> Settings:
    """Return the settings with all fields of a chosen preset in its place."""
    chosen = merged.pop(_PRESET, None)
    if chosen is None or not chosen.value:
        return merged
    expanded = Settings()
    origin = f"preset {chosen.value} ({chosen.origin})"
    for name, value in preset(str(chosen.value)).model_dump(mode="json").items():
        expanded[f"model.{name}"] = Setting(value, origin)
    return expanded | merged


def _sections(
    schema: type[BaseModel], fields: Mapping[str, FieldInfo], merged: Settings
) -> dict[str, dict[str, Json]]:
    """Return the settings as the table of sections that pydantic checks."""
    sections: dict[str, dict[str, Json]] = {name: {} for name in schema.model_fields}
    for key, setting in merged.items():
        section, _, name = key.partition(".")
        value = setting.value
        takes_text = fields[key].annotation in (str, str | None)
        # a text as it was typed, which TOML takes for a number or a date: 2024-01-01
        if (
            takes_text
            and setting.word is not None
            and not isinstance(value, str | None)
        ):
            value = setting.word
        sections[section][name] = value
    return sections


def _refused(error: ValidationError, merged: Settings, listing: str) -> LitebertError:
    """Return the error for the first setting that pydantic or a rule refuses."""
    first = error.errors(include_url=False)[0]
    name = _refused_setting(first, merged)
    setting = merged.get(name, Setting(name, DEFAULT))
    expected = expected_value(first)
    if first["type"] == "missing":
        return LitebertError(
            "LB-104", f"{name} is missing", expected=expected, next=listing
        )
    return LitebertError(
        "LB-104",
        f"{name} cannot have this value (from {setting.origin})",
        received=repr(setting.value),
        expected=expected,
        next=listing,
    )


def _refused_setting(error: ErrorDetails, merged: Settings) -> str:
    """Return the setting to change: the refused one; of several that contradict each
    other, one that was typed, else one that was set at all.
    """
    # section.name; what follows is an entry of a table or an index of a list
    place = ".".join(str(part) for part in error["loc"][:2])
    rule = error.get("ctx", {}).get("error")
    if not isinstance(rule, ContradictionError):
        return place
    # a rule of a section names its fields, one of the whole their dotted names
    names = [f"{place}.{name}".lstrip(".") for name in rule.names]
    were_set = [key for key in merged if key in names]
    were_typed = [key for key in were_set if is_typed(merged[key].origin)]
    return (were_typed or were_set or names)[0]


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
            before = fields[table].default
            if table in merged:
                before = merged[table].value
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
    lines = []
    for name in sorted({*old, *new}):
        before = old.get(name)
        after = new.get(name)
        if before != after:
            lines.append(f"{name}: {before} -> {after}")
    return lines


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
    fields = dict[str, FieldInfo]()
    for section, info in schema.model_fields.items():
        record = info.annotation
        if isinstance(record, type) and issubclass(record, BaseModel):
            for name, field in record.model_fields.items():
                fields[f"{section}.{name}"] = field
    return fields


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
_LIMITS = {
    "gt": "above {:,}",
    "ge": "{:,} or more",
    "lt": "below {:,}",
    "le": "at most {:,}",
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
    described = []
    for name, field in fields_of(schema).items():
        default = "required" if field.is_required() else repr(field.default)
        allowed = describe_allowed(field)
        described.append(Description(name, default, allowed, field.description or ""))
    return described


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
                words += f": the name of a {note.registry.noun}"
        limits = _describe_limits(field)
        if limits:
            # a number above 0; a number, 1 or more
            comma = "," if limits[0].isdigit() else ""
            words = f"{words}{comma} {limits}"
    return f"{words}, or null" if is_optional else words


def _describe_limits(field: FieldInfo) -> str:
    limits = list[str]()
    for name, phrase in _LIMITS.items():
        for note in field.metadata:
            if hasattr(note, name):
                limits.append(phrase.format(getattr(note, name)))
    return ", ".join(limits)


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
    if first["msg"].startswith("Input should be "):
        return f"{place} should be {expected_value(first)}"
    return f"{place}: {expected_value(first)}"
