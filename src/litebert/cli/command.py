"""A command of the shell, made from a function.

The signature says everything: positional parameters are arguments and keyword-only ones options; their types become
checks, `Annotated[int, "Answers to show."]` the help of an option, the docstring that of the command; a parameter
whose type is a dataclass stands for the options of its fields. What the function returns is printed: as `str(found)`
for people, with --json as JSON, and the items of an iterator as they come. Its `notes` go to stderr, and its
`exit_code` ends the process.
"""

from __future__ import annotations

import collections.abc
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Required, Union, get_args, get_origin, get_type_hints

import click
from annotated_types import Ge, Gt, Le

from litebert.errors import NonFiniteError, harmless, say

ABSENT: Any = inspect.Parameter.empty


class Field(NamedTuple):
    """One value that a command takes: its name, its type without None, its default and its help."""

    name: str
    kind: Any
    default: Any
    help: str
    is_optional: bool
    limits: tuple[Any, ...] = ()
    is_required: bool = False


def field_of(name: str, hint: Any, default: Any) -> Field:
    """Take an annotation apart."""
    description, is_optional, is_required = "", False, False
    limits: tuple[Any, ...] = ()
    while True:
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            limits = (*limits, *(each for each in notes if isinstance(each, Ge | Gt | Le)))
            is_required |= Required in notes  # in the shell alone
            description = next((each for each in notes if isinstance(each, str)), description)
        elif get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
            is_optional = True
            hint = Union[tuple(each for each in get_args(hint) if each is not NoneType)]  # noqa: UP007
        else:
            return Field(name, hint, default, description, is_optional, limits, is_required)


def options_of(record: type, flags: Mapping[str, str]) -> list[click.Parameter]:
    """Return the options of the fields of a dataclass."""
    hints = get_type_hints(record, include_extras=True)
    defaults = {f.name: f.default if f.default is not MISSING else ABSENT for f in fields(record)}
    return [option_of(field_of(name, hints[name], default), flags) for name, default in defaults.items()]


def option_of(field: Field, flags: Mapping[str, str] = {}) -> click.Option:
    """Return the option of a keyword-only parameter; `flags` has other names than its own."""
    flag = flags.get(field.name, "--" + field.name.replace("_", "-"))
    default = None if field.default is ABSENT else field.default
    if field.kind is bool:
        name = f"{flag}/--no-{flag[2:]}" if field.is_optional else flag
        return click.Option([name, field.name], is_flag=True, default=default, help=field.help)
    item, is_several = _item_of(field.kind)
    return click.Option(
        [flag, field.name],
        type=NUMBERS if (item, is_several) == (int, True) else click_type(item, field.limits),
        multiple=is_several and item is not int,
        **({} if default is None else {"default": default}),
        show_default=default not in (None, "", (), []),
        required=field.is_required or field.default is ABSENT,
        help=field.help,
    )


def argument_of(field: Field, *, is_several: bool = False) -> click.Argument:
    """Return the argument of a positional parameter."""
    item, is_sequence = _item_of(field.kind)
    several = is_several or is_sequence
    metavar = f"{field.name.upper()}{'...' if several else ''}"
    is_required = field.is_required or field.default is ABSENT
    return click.Argument(
        [field.name],
        type=click_type(item),
        nargs=-1 if several else 1,
        required=is_required,
        metavar=metavar if is_required else f"[{metavar}]",
    )


def command_of(
    function: Callable[..., object], name: str, *, flags: Mapping[str, str] = {}, examples: Sequence[str] = ()
) -> click.Command:
    """Return the command of a function; `flags` renames options: {"start": "--from"}."""
    hints = get_type_hints(function, include_extras=True)
    params: list[click.Parameter] = []
    records: dict[str, type] = {}
    texts = None
    signature = inspect.signature(function)
    for each in signature.parameters.values():
        is_rest = each.kind is each.VAR_POSITIONAL
        field = field_of(each.name, hints[each.name], () if is_rest else each.default)
        if get_origin(field.kind) is collections.abc.Callable:
            continue  # a callback of Python's callers
        if isinstance(field.kind, type) and is_dataclass(field.kind):
            records[each.name] = field.kind
            params += options_of(field.kind, flags)
        elif each.name == "settings":  # KEY=VALUE among the texts, or alone
            if texts is None:
                params.append(click.Argument(["settings"], nargs=-1, metavar="[KEY=VALUE]..."))
            else:
                params[params.index(texts)].metavar = f"[{texts.name.upper()}]... [KEY=VALUE]..."
        elif each.kind is each.KEYWORD_ONLY:
            params.append(option_of(field, flags))
        else:
            argument = argument_of(field, is_several=is_rest)
            params.append(argument)
            texts = argument if argument.nargs == -1 else texts
    returned = hints.get("return", NoneType)
    formats = () if returned in (NoneType, str) else getattr(returned, "formats", ("json",))
    params += [
        click.Option([f"--{each}", "written_as"], flag_value=each, help=f"Print {PRINTED[each]}.") for each in formats
    ]

    def run(written_as: str | None = None, **given: Any) -> None:
        for record_name, record in records.items():
            given[record_name] = record(**{f.name: given.pop(f.name) for f in fields(record)})
        if "settings" in signature.parameters and texts is not None:
            words = given[str(texts.name)]
            given[str(texts.name)] = tuple(word for word in words if not is_setting(word))
            given["settings"] = tuple(word for word in words if is_setting(word))
        positional = []
        for each in signature.parameters.values():
            if each.kind is each.VAR_POSITIONAL:
                positional += given.pop(each.name)
            elif each.kind is not each.KEYWORD_ONLY and each.name in given:
                positional.append(given.pop(each.name))
        present(function(*positional, **given), written_as)

    return TextCommand(name, callback=run, params=params, help=help_of(function.__doc__ or "", examples))


PRINTED = {"json": "JSON", "csv": "CSV", "markdown": "Markdown"}


def present(found: object, written_as: str | None = None) -> None:
    """Print what a function returned, in the first process of several, and end the process if it failed."""
    if isinstance(found, Iterator):
        for each in found:
            if written_as == "json":
                show_json(each)
            else:
                show(str(each))
    elif found is not None and os.environ.get("RANK", "0") in ("", "0"):
        shown = found.as_json() if written_as == "json" and hasattr(found, "as_json") else found
        if written_as == "json":
            if shown is not None:
                show_json(shown, indent=2)
        elif written_as is not None:
            show(getattr(found, f"as_{written_as}")())
        elif text := str(found):
            show(text)
        for each in getattr(found, "notes", ()):
            note(each)
    if code := getattr(found, "exit_code", 0):
        sys.exit(code)


def is_setting(word: str) -> bool:
    """Tell KEY=VALUE from a text or a path."""
    return re.match(r"[A-Za-z_][\w.]*=", word) is not None and not Path(word).exists()


def help_of(docstring: str, examples: Sequence[str] = ()) -> str:
    """Return the help of a command: the paragraphs of the docstring; those of commands keep their lines."""
    paragraphs = [*inspect.cleandoc(docstring).split("\n\n"), *(["\n".join(examples)] if examples else [])]
    return "\n\n".join(f"\b\n{each}" if each.startswith("litebert ") else each for each in paragraphs)


def _item_of(kind: Any) -> tuple[Any, bool]:
    """Return the type of one value, and whether there can be several: str | Path | Sequence[str | Path] is several."""
    if get_origin(kind) in (Union, UnionType):
        items = [_item_of(each) for each in get_args(kind)]
        several = any(is_several for _, is_several in items)
        kinds = {item for item, _ in items}
        return (Path if kinds <= {Path} else str if str in kinds else items[0][0]), several
    if get_origin(kind) in (tuple, list, collections.abc.Sequence, collections.abc.Iterable):
        return _item_of(get_args(kind)[0])[0], True
    return kind, False


def click_type(kind: Any, limits: Sequence[Any] = ()) -> click.ParamType[Any, Any]:
    """Return how a word of the shell becomes a value of a type."""
    if get_origin(kind) is Literal:
        return click.Choice(list(get_args(kind)))
    if limits:
        return Number(kind, limits)
    kinds: dict[Any, click.ParamType[Any, Any]]
    kinds = {int: click.INT, float: click.FLOAT, Path: PATH}
    return kinds.get(kind, TEXT)


class Number(click.ParamType[Any, Any]):
    """A number within limits, each of which a message can name."""

    name = "number"

    def __init__(self, kind: type[int] | type[float], limits: Sequence[Any]) -> None:
        self._kind, self._limits = kind, limits

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the number."""
        what = "whole number" if self._kind is int else "number"
        try:
            number = self._kind(value)
        except ValueError:
            self.fail(f"{value} is not a {what}", param, ctx)
        for limit in self._limits:
            for name, words in (("ge", "of at least"), ("gt", "above"), ("le", "of at most")):
                bound = getattr(limit, name, None)
                if bound is None:
                    continue
                if not {"ge": number >= bound, "gt": number > bound, "le": number <= bound}[name]:
                    self.fail(f"{value} is not a {what} {words} {bound}", param, ctx)
        return number


class Numbers(click.ParamType[Any, Any]):
    """Whole numbers with commas between them, such as the seeds 1,2,3."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the numbers."""
        if not isinstance(value, str):
            return value
        try:
            found = tuple(int(part) for part in value.split(",") if part.strip())
        except ValueError:
            found = (-1,)
        if any(number < 0 for number in found):
            self.fail(f"{value!r} is not a list of whole numbers from 0, such as 1,2,3", param, ctx)
        return found


NUMBERS = Numbers()

# What is printed


def show(text: str, *, err: bool = False) -> None:
    """Print a text; characters that would control the terminal are written as escapes."""
    if err:
        say(text)
    else:
        click.echo(harmless(text))


def show_json(value: object, *, indent: int | None = None) -> None:
    """Print a value or records as JSON; with --json nothing else goes to stdout."""
    from pydantic_core import to_jsonable_python

    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=to_jsonable_python)
    except ValueError as error:
        raise NonFiniteError(
            "LB-928",
            "a result is not a finite number",
            received="NaN or infinity",
            expected="finite numbers",
            next="print it without --json, and check the weights and the data for damage",
        ) from error
    show(text)


def note(text: str) -> None:
    """Print a note on stderr."""
    show(text, err=True)


# Texts that begin with a dash

_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*(=.*)?", re.DOTALL)
_MARK = "\0"
"""Marks a text for the parser; no argument of a process can contain this character."""


class TextCommand(click.Command):
    """A command on texts: an argument that cannot be the name of an option is a text."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Mark texts that begin with a dash, so that they are not read as options."""
        return super().parse_args(ctx, list(self._marked(args)))

    def _marked(self, args: list[str]) -> Iterator[str]:
        options = (each for each in self.params if isinstance(each, click.Option) and not each.is_flag)
        taking = {name for option in options for name in option.opts}
        is_value = False
        for place, word in enumerate(args):
            if word == "--":
                yield from args[place:]
                return
            is_text = word.startswith("-") and word != "-" and not _OPTION.fullmatch(word)
            yield _MARK + word if is_text and not is_value else word
            is_value = word in taking


class Text(click.ParamType[Any, Any]):
    """A text as it was typed."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Remove the mark."""
        return value.removeprefix(_MARK) if isinstance(value, str) else value


TEXT = Text()


class AnyPath(Text):
    """A path as it was typed."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Remove the mark."""
        return Path(super().convert(value, param, ctx))


PATH = AnyPath()
