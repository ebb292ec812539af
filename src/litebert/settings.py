"""Merge recipe, file and command line into a checked configuration; each value keeps
its origin.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from litebert.config import ContradictionError, Options, Weight, preset
from litebert.errors import LitebertError
from litebert.files import Json, read_capped
from litebert.origins import DEFAULT, FLAG, MEASURED, Origin
from litebert.plugins import NameIn, Registry, plugins_used

Schema = TypeVar("Schema", bound=BaseModel)

# ---- values and where they were set --------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A value and where it was set."""

    value: Json
    origin: Origin = FLAG


Settings: TypeAlias = dict[str, Setting]
"""Settings by their dotted names, such as `train.steps`."""


def settings_from_toml(path: Path, *, recipe: str | None = None) -> Settings:
    """Read a TOML file as dotted settings; `recipe` is its name if it is a recipe."""
    origin = Origin("file", str(path))
    if recipe is not None:
        origin = Origin("recipe", recipe)
    settings = Settings()
    for name, value in _flatten_table(_read_toml(path)).items():
        settings[name] = Setting(value, origin)
    return settings


def _read_toml(path: Path) -> dict[str, Json]:
    data = read_capped(path, 1 << 20, command="litebert recipes list")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise LitebertError(
            "LB-101",
            f"{path} is not valid TOML",
            received=error,
            next="litebert recipes show quickstart",
        ) from error


def settings_from_words(words: Sequence[str]) -> Settings:
    """Read `key=value` words of a command line; a value that is not TOML is taken as
    text.
    """
    settings = Settings()
    for word in words:
        name, equals, text = map(str.strip, word.partition("="))
        if not equals or not name:
            raise LitebertError(
                "LB-102",
                "this word of the command line is not a setting",
                received=word,
                expected="section.name=value, as in train.steps=9",
                next="litebert pretrain --help",
            )
        settings[name] = Setting(_typed_value(text), Origin("command line", word))
    return settings


def words_of(name: str, value: Json) -> list[str]:
    """Return the words of a command line that give a setting its value; of a table, a
    word for each entry.

    >>> words_of("train.steps", 9), words_of("data.columns", ["text=a"])
    (['train.steps=9'], ['data.columns=["text=a"]'])
    """
    if isinstance(value, dict):
        words = list[str]()
        for entry, number in value.items():
            words += words_of(f"{name}.{entry}", number)
        return words
    if isinstance(value, str):
        return [f"{name}={value}"]
    return [f"{name}={json.dumps(value, ensure_ascii=False)}"]


def _typed_value(text: str) -> Json:
    """Return the value that a user typed without the quotes that TOML asks for.

    >>> _typed_value("3"), _typed_value("linear"), _typed_value("null")
    (3, 'linear', None)
    """
    try:
        value: Json = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return None if text == "null" else text
    return value


# ---- the configuration that follows from them ----------------------------------------


@dataclass(frozen=True)
class Resolved(Generic[Schema]):
    """A checked configuration with the origin of each dotted setting."""

    config: Schema
    origins: dict[str, Origin]

    def fill_measured(self, config: Schema) -> "Resolved[Schema]":
        """Return the configuration completed by measurements; changed settings get the
        origin `MEASURED`.
        """
        before = flatten(self.config)
        origins = dict(self.origins)
        for name, value in flatten(config).items():
            if before[name] != value:
                origins[name] = MEASURED
        return Resolved(config, origins)


# it sets all fields of the network; single fields override it
_PRESET = "model.preset"


def resolve(schema: type[Schema], *layers: Settings) -> Resolved[Schema]:
    """Merge settings, later layers over earlier ones, and check them against `schema`.

    `model.preset` sets all fields of the network; single fields override it.
    """
    fields = fields_of(schema)
    known = list(fields)
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
        raise _refused(error, merged, fields, listing) from error
    for chosen in names_in(config):
        assignment = f"{chosen.setting}={chosen.name}"
        chosen.registry.require(chosen.name, setting=assignment)

    origins = dict.fromkeys(fields, DEFAULT)
    for name, setting in merged.items():
        origins[name] = setting.origin
    return Resolved(config, origins)


def _merge(layers: Sequence[Settings], fields: Mapping[str, FieldInfo]) -> Settings:
    """Return the settings of all layers, later ones over earlier ones.

    A field that is a table is merged entry by entry: `section.field.name` sets one.
    """
    tables = [name for name, field in fields.items() if _is_table(field)]
    merged = Settings()
    for layer in layers:
        for name, setting in layer.items():
            table, _, entry = name.rpartition(".")
            entries: dict[str, Json]
            if name in tables and isinstance(setting.value, dict):
                table = name
                entries = setting.value
            elif table in tables:
                entries = {entry: setting.value}
            else:
                merged[name] = setting
                continue
            before = fields[table].default
            if table in merged:
                before = merged[table].value
            assert isinstance(before, dict), "the field is a table"
            merged[table] = Setting(before | entries, setting.origin)
    return merged


def _is_table(field: FieldInfo) -> bool:
    """Return whether a setting has entries of its own, by name."""
    return get_origin(field.annotation) is dict


def _expand_preset(merged: Settings) -> Settings:
    """Return the settings with all fields of a chosen preset in its place."""
    chosen = merged.pop(_PRESET, None)
    if chosen is None or not chosen.value:
        return merged
    preset_name = str(chosen.value)
    origin = Origin("preset", preset_name, chosen_by=chosen.origin)
    expanded = Settings()
    for name, value in preset(preset_name).model_dump(mode="json").items():
        expanded[f"model.{name}"] = Setting(value, origin)
    return expanded | merged


def _sections(
    schema: type[BaseModel], fields: Mapping[str, FieldInfo], merged: Settings
) -> dict[str, dict[str, Json]]:
    """Return the settings as the table of sections that pydantic checks."""
    sections: dict[str, dict[str, Json]] = {name: {} for name in schema.model_fields}
    for dotted_name, setting in merged.items():
        section, _, name = dotted_name.partition(".")
        value = setting.value
        if fields[dotted_name].annotation in (str, str | None):
            value = _as_text(setting)
        sections[section][name] = value
    return sections


def _as_text(setting: Setting) -> Json:
    """Return the value of a setting that takes text: `data.corpus=2024-01-01` names a
    folder, although TOML reads a date.
    """
    if setting.origin.kind != "command line" or isinstance(setting.value, str | None):
        return setting.value
    return setting.origin.name.partition("=")[2].strip()


# ---- settings that are refused -------------------------------------------------------


def _require_known(merged: Settings, known: Sequence[str], listing: str) -> None:
    """Raise LB-103 for a setting that does not exist."""
    for name, setting in merged.items():
        if name not in known:
            raise LitebertError(
                "LB-103",
                f"there is no setting {name} (from {setting.origin})",
                received=name,
                expected=_hint_at(name, known),
                next=listing,
            )


def _hint_at(unknown: str, known: Sequence[str]) -> str:
    """Return a hint at the setting that was meant.

    >>> _hint_at("optim.lr", ["optim.learning_rate", "optim.clip_norm"])
    'did you mean optim.learning_rate?'
    """
    section, _, name = unknown.rpartition(".")
    of_section = _settings_of_section(section, known)
    alike = difflib.get_close_matches(name, of_section, n=1, cutoff=0.6)
    meant = [
        *difflib.get_close_matches(unknown, known, n=1, cutoff=0.9),
        *(setting for setting in known if setting.rpartition(".")[2] == name),
        *(of_section[field] for field in of_section if _initials(field) == name),
        # without the section, by which alone whole names are alike
        *(of_section[field] for field in alike),
    ]
    if meant:
        return f"did you mean {meant[0]}?"
    return f"one of {', '.join(sorted(of_section.values() or known))}"


def _settings_of_section(section: str, known: Sequence[str]) -> dict[str, str]:
    """Return the settings of a section by their names in it; all settings if the user
    gave no section.
    """
    of_section = dict[str, str]()
    for setting in known:
        its_section, _, name = setting.rpartition(".")
        if section in ("", its_section):
            of_section[name] = setting
    return of_section


def _initials(name: str) -> str:
    """Return the initials of a name of several words, such as `lr` for learning_rate."""
    words = name.split("_")
    return "".join(word[0] for word in words) if len(words) > 1 else name


def _refused(
    error: ValidationError,
    merged: Settings,
    fields: Mapping[str, FieldInfo],
    listing: str,
) -> LitebertError:
    """Return the error for the first setting that pydantic or a rule refuses."""
    first = error.errors(include_url=False)[0]
    name = _refused_setting(first, merged)
    expected = expected_value(first)
    if name in fields and first["type"].endswith(_WRONG_KIND):
        expected = describe_allowed(fields[name])
    if first["type"] == "missing":
        return LitebertError(
            "LB-104", f"{name} is missing", expected=expected, next=listing
        )
    setting = merged.get(name, Setting(name, DEFAULT))
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
    were_set = [name for name in merged if name in names]
    were_typed = [name for name in were_set if merged[name].origin.is_typed]
    candidates = were_typed or were_set or names
    return candidates[0]


# ---- a configuration as dotted names -------------------------------------------------


@dataclass(frozen=True)
class ChosenName:
    """The value of a setting that is a name in a registry."""

    setting: str
    registry: Registry[Any]
    name: str


def names_in(config: BaseModel) -> list[ChosenName]:
    """Return the settings of a configuration that are names in a registry."""
    values = flatten(config)
    chosen = list[ChosenName]()
    for setting, field in fields_of(type(config)).items():
        for registry in _registries_of(field):
            value = values[setting]
            names = list(value) if isinstance(value, dict) else [value]
            chosen += [ChosenName(setting, registry, str(name)) for name in names]
    return chosen


def _registries_of(field: FieldInfo) -> list[Registry[Any]]:
    """Return the registries that have the names which a setting may have."""
    return [note.registry for note in field.metadata if isinstance(note, NameIn)]


def plugins_of(config: BaseModel) -> tuple[str, ...]:
    """Return the plug-ins that added the names in a configuration."""
    return plugins_used((chosen.registry, chosen.name) for chosen in names_in(config))


def flatten(config: BaseModel) -> dict[str, Json]:
    """Return a configuration as dotted names and values."""
    return _flatten_table(config.model_dump(mode="json"))


def _flatten_table(table: Mapping[str, Json]) -> dict[str, Json]:
    """Return section.name and value for every section of a table; keys outside sections
    keep their names.
    """
    dotted: dict[str, Json] = {}
    for section, content in table.items():
        if not isinstance(content, dict):
            dotted[section] = content
            continue
        for name, value in content.items():
            dotted[f"{section}.{name}"] = value
    return dotted


@dataclass(frozen=True)
class Change:
    """A setting whose values differ in two configurations; None where one lacks it."""

    name: str
    before: Json
    after: Json

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after}"


def difference(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[Change]:
    """List the settings whose values differ, by name."""
    changes = list[Change]()
    for name in sorted({*old, *new}):
        change = Change(name, old.get(name), new.get(name))
        if change.before != change.after:
            changes.append(change)
    return changes


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


def settings_at_default(config: BaseModel) -> list[str]:
    """Return the dotted names of the settings that have their default value."""
    names = list[str]()
    for dotted_name, field in fields_of(type(config)).items():
        section, _, name = dotted_name.partition(".")
        if getattr(getattr(config, section), name) == field.default:
            names.append(dotted_name)
    return names


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
    Options: (
        "values by name, {name = 1}: texts, numbers, true or false, or lists of texts"
    ),
    dict[str, float]: "numbers by name, {name = 1}",
}
# how pydantic's names of errors end if a value is not of the type of its setting
_WRONG_KIND = ("_type", "_parsing")
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
    descriptions = list[Description]()
    for name, field in fields_of(schema).items():
        default = "required" if field.is_required() else repr(field.default)
        meaning = field.description or ""
        descriptions.append(
            Description(name, default, describe_allowed(field), meaning)
        )
    return descriptions


def describe_allowed(field: FieldInfo) -> str:
    """Describe the values that a setting may have.

    >>> from litebert.config import OptimConfig
    >>> describe_allowed(OptimConfig.model_fields["learning_rate"])
    'a number above 0, at most 10'
    >>> describe_allowed(OptimConfig.model_fields["schedule"])
    'official, linear or wsd'
    """
    members = get_args(field.annotation)
    if NoneType not in members:
        return _describe_kind(field.annotation, field)
    (kind,) = [member for member in members if member is not NoneType]
    return f"{_describe_kind(kind, field)}, or null"


def _describe_kind(kind: object, field: FieldInfo) -> str:
    """Describe the type of a setting, with the limits and names that its field allows."""
    if get_origin(kind) is Literal:
        return _one_of(get_args(kind))
    words = _KINDS[kind]
    for registry in _registries_of(field):
        words += f": the name of {registry.noun_with_article()}"
    limits = _describe_limits(field)
    if not limits:
        return words
    # "a number above 0", but "a number, 1 or more"
    comma = "," if limits[0].isdigit() else ""
    return f"{words}{comma} {limits}"


def _one_of(choices: Sequence[object]) -> str:
    """Return the choices in words.

    >>> _one_of(["all"]), _one_of(["all", "ffn", "none"])
    ('all', 'all, ffn or none')
    """
    *first, last = map(str, choices)
    return f"{', '.join(first)} or {last}" if first else last


def _describe_limits(field: FieldInfo) -> str:
    """Describe the limits of a number: "above 0, at most 10"; "" if it has none."""
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
