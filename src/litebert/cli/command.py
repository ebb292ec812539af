"""Commands of the shell, made from functions.

The signature defines everything: positional parameters become arguments, keyword-only
ones options, and types become checks. `Annotated` adds the limits of a number
(`Ge(1)`), the name of an option if it differs from the parameter's ("--column"), and
its help. What a command writes, `output`, may be given as an argument or as --output,
unless there are several inputs. The docstring is the help of the command. A parameter
with a dataclass as its type adds an option for each field. The return value is printed:
as `str(found)` for people, as JSON with --json, and the items of an iterator one by
one. Its `notes` go to stderr, and a nonzero `exit_code` ends the process.
"""

import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import click
from annotated_types import Ge, Gt, Le

from litebert.errors import NonFiniteError, escape_control, say

ABSENT: Any = inspect.Parameter.empty
PRINTED = {"json": "JSON", "csv": "CSV", "markdown": "Markdown"}


def command_of(function: Callable[..., object], name: str) -> click.Command:
    """Return the command made from a function."""
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    params: list[click.Parameter] = []
    records: dict[str, type] = {}
    texts: click.Argument | None = None
    writes_one = _takes_output_as_word(signature, hints)
    for each in signature.parameters.values():
        hint = hints[each.name]
        default = each.default
        if isinstance(hint, type) and is_dataclass(hint):
            records[each.name] = hint
            params += options_of(hint)
        elif each.name == "settings":  # KEY=VALUE among the texts, or on its own
            if texts is None:
                params.append(
                    click.Argument(["settings"], nargs=-1, metavar="[KEY=VALUE]...")
                )
            else:
                texts.metavar = f"[{str(texts.name).upper()}]... [KEY=VALUE]..."
        elif each.name == "output" and writes_one:
            params += either(each.name, hint)
        elif each.kind is each.KEYWORD_ONLY:
            params.append(option(each.name, hint, default))
        else:
            if each.kind is each.VAR_POSITIONAL:
                hint = GenericAlias(tuple, (hint, ...))
                default = ()
            word = argument(each.name, hint, default)
            texts = word if word.nargs == -1 else texts
            params.append(word)
    returned = hints.get("return", NoneType)
    for form in (
        () if returned in (NoneType, str) else getattr(returned, "formats", ("json",))
    ):
        params.append(
            click.Option(
                [f"--{form}", "written_as"],
                flag_value=form,
                help=f"Print {PRINTED[form]}.",
            )
        )

    def run(written_as: str | None = None, **given: Any) -> None:
        for name, record in records.items():
            given[name] = record(
                **{field.name: given.pop(field.name) for field in fields(record)}
            )
        if "settings" in signature.parameters and texts is not None:
            words = given[str(texts.name)]
            given["settings"] = tuple(filter(is_setting, words))
            given[str(texts.name)] = tuple(
                word for word in words if word not in given["settings"]
            )
        if writes_one:
            given["output"] = choose_given("output", given)
        bound = inspect.BoundArguments(signature, given)
        present(function(*bound.args, **bound.kwargs), written_as)

    return TextCommand(
        name, callback=run, params=params, help=help_of(function.__doc__ or "")
    )


def options_of(record: type) -> list[click.Parameter]:
    """Return an option for each field of a dataclass."""
    hints = get_type_hints(record, include_extras=True)
    return [
        option(f.name, hints[f.name], ABSENT if f.default is MISSING else f.default)
        for f in fields(record)
    ]


def option(name: str, hint: Any, default: Any) -> click.Option:
    """Return the option for a keyword-only parameter."""
    kind, is_several, notes = _parse_hint(hint)
    words = [note for note in notes if isinstance(note, str)]
    flag = next(
        (word for word in words if word.startswith("--")), "--" + name.replace("_", "-")
    )
    meaning = next((word for word in words if not word.startswith("--")), "")
    if kind is bool:
        flag = f"{flag}/--no-{flag[2:]}" if None in notes else flag
        return click.Option([flag, name], is_flag=True, default=default, help=meaning)
    is_given = default is not None and default is not ABSENT
    return click.Option(
        [flag, name],
        type=numbers if kind is int and is_several else _type_of(kind, notes),
        multiple=is_several and kind is not int,
        **({"default": default} if is_given else {}),
        show_default=is_given and default not in ("", (), []),
        required=Required in notes or default is ABSENT,
        help=meaning,
    )


def argument(name: str, hint: Any, default: Any = ABSENT) -> click.Argument:
    """Return the argument for a positional parameter."""
    kind, is_several, notes = _parse_hint(hint)
    metavar = f"{name.upper()}{'...' if is_several else ''}"
    is_required = Required in notes or default is ABSENT
    return click.Argument(
        [name],
        type=_type_of(kind, notes),
        nargs=-1 if is_several else 1,
        required=is_required,
        metavar=metavar if is_required else f"[{metavar}]",
        **({} if is_required or is_several else {"default": default}),
    )


def either(name: str, hint: Any) -> list[click.Parameter]:
    """Return an argument and an option for one value, which `choose_given` reads."""
    kind, _, notes = _parse_hint(hint)
    meaning = next((note for note in notes if isinstance(note, str)), "")
    word = click.Argument(
        [name], type=_type_of(kind, notes), required=False, metavar=name.upper()
    )
    flag = click.Option(
        [f"--{name}", f"{name}_option"], type=_type_of(kind, notes), help=meaning
    )
    return [word, flag]


def choose_given(name: str, given: dict[str, Any], *, is_needed: bool = True) -> Any:
    """Return what was given for `name`, as an argument or as an option; take the option
    out of `given`.
    """
    word = given[name]
    flag = given.pop(f"{name}_option")
    if word is not None and flag is not None:
        raise click.UsageError(f"{name.upper()} is given twice, as --{name}, too")
    if word is None and flag is None and is_needed:
        raise click.UsageError(f"Missing argument '{name.upper()}'")
    return flag if word is None else word


def _takes_output_as_word(signature: inspect.Signature, hints: dict[str, Any]) -> bool:
    """Return whether a command writes an output that it needs, from one input."""
    output = signature.parameters.get("output")
    if output is None:
        return False
    for each in signature.parameters.values():
        is_word = each.kind is not each.KEYWORD_ONLY
        is_several = (
            each.kind is each.VAR_POSITIONAL or _parse_hint(hints[each.name])[1]
        )
        if is_word and is_several:
            return False
    return output.default is ABSENT


def _parse_hint(hint: Any) -> tuple[Any, bool, list[Any]]:
    """Return the type of one value, whether several are allowed, and the notes, with
    None if it is allowed.
    """
    parts = [hint]
    notes = list[Any]()
    is_several = False
    if get_origin(hint) is Annotated:
        parts = [get_args(hint)[0]]
        notes = list(get_args(hint)[1:])
    elif get_origin(hint) in (Union, UnionType):
        parts = [each for each in get_args(hint) if each is not NoneType]
        notes = [None] * (NoneType in get_args(hint))
    elif get_origin(hint) in (tuple, list, Sequence):
        parts = [get_args(hint)[0]]
        is_several = True
    else:
        return hint, False, []
    kinds, severals, inner = zip(*map(_parse_hint, parts), strict=True)
    notes += [note for notes in inner for note in notes]
    return (str if str in kinds else kinds[0]), is_several or any(severals), notes


def is_setting(word: str) -> bool:
    """Return whether a word is KEY=VALUE, not a text or a path."""
    is_file = os.path.exists(word)  # noqa: PTH110  unlike Path.exists, not an error for a long word
    return re.match(r"[A-Za-z_][\w.]*=", word) is not None and not is_file


def help_of(docstring: str) -> str:
    """Return the help of a command: its docstring without the paragraphs about Python;
    paragraphs of example commands keep their line breaks.
    """
    paragraphs = list[str]()
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if paragraph.startswith("litebert "):
            paragraphs.append(f"\b\n{paragraph}")
        elif not paragraph.startswith("In Python"):
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


# ---- output --------------------------------------------------------------------------


def present(found: object, written_as: str | None = None) -> None:
    """Print what a function returned (of several processes, only in the first); end the
    process if it failed.
    """
    is_alone = os.environ.get("WORLD_SIZE", "1") in ("", "1")
    if isinstance(found, Iterator):
        for each in found:
            show_json(each) if written_as == "json" else show(str(each))
    elif found is not None and (is_alone or os.environ.get("RANK", "0") in ("", "0")):
        if written_as == "json":
            show_json(found, indent=2)
        elif text := (
            str(found) if written_as is None else getattr(found, f"as_{written_as}")()
        ):
            show(text)
        for each in getattr(found, "notes", ()):
            say(each)
    if code := getattr(found, "exit_code", 0):
        sys.exit(code)


def show(text: str) -> None:
    """Print a text; control characters of the terminal are escaped."""
    click.echo(escape_control(text))


def show_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value, or what its `as_json` returns unless this is None; with --json,
    stdout gets nothing else.
    """
    plain = as_json(value)
    if plain is None:
        return
    try:
        show(json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=indent))
    except ValueError as error:
        advice = (
            "print it without --json, and check the weights and the data for damage"
        )
        raise NonFiniteError(
            "LB-928", "a result is NaN or infinity, which JSON cannot hold", next=advice
        ) from error


def as_json(value: Any) -> Any:
    """Return a value as JSON can hold it: what its `as_json` returns, if it has that;
    arrays become lists.
    """
    from pydantic_core import to_jsonable_python

    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if hasattr(value, "as_json"):
        value = value.as_json()
    return to_jsonable_python(value, fallback=lambda array: array.tolist())


# ---- parsing words into values -------------------------------------------------------

_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*(=.*)?", re.DOTALL)
# marks a text for the parser; no argument of a process can contain this character
_MARK = "\0"


class TextCommand(click.Command):
    """A command for texts: an argument that cannot be an option's name is a text, even
    if it starts with a dash.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = (
            each
            for each in self.params
            if isinstance(each, click.Option) and not each.is_flag
        )
        taking = {name for option in options for name in option.opts}
        end = args.index("--") if "--" in args else len(args)
        marked = [
            (
                _MARK + word
                if word[:1] == "-" != word
                and not _OPTION.fullmatch(word)
                and before not in taking
                else word
            )
            for before, word in zip(["", *args], args[:end], strict=False)
        ]
        rest = super().parse_args(ctx, marked + args[end:])
        ctx.params = {name: _unmark(value) for name, value in ctx.params.items()}
        return rest


def _unmark(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unmark, value))
    return (
        type(value)(str(value).removeprefix(_MARK))
        if isinstance(value, str | Path)
        else value
    )


class Real(click.FloatRange):
    """A number within limits; unlike click's type, it refuses NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        number = super().convert(value, param, ctx)
        return (
            self.fail(f"{value} is not a number", param, ctx)
            if math.isnan(number)
            else number
        )


def numbers(words: Any) -> Any:
    """Parse whole numbers: 1,2,3. Anything but a string is a default, which needs no
    parsing.
    """
    if isinstance(words, str) and not re.fullmatch(r"\d+(,\d+)*", words):
        raise click.BadParameter(
            f"{words!r} is not a list of whole numbers from 0, such as 1,2,3"
        )
    return tuple(map(int, words.split(","))) if isinstance(words, str) else words


def _type_of(kind: Any, notes: list[Any]) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(list(get_args(kind)))
    if kind not in (int, float):
        return Path if kind is Path else str
    limits = {
        name: value
        for note in notes
        if isinstance(note, Ge | Gt | Le)
        for name, value in asdict(note).items()
    }
    if not limits:
        return kind
    low, least, most = map(limits.get, ("gt", "ge", "le"))
    if kind is int:
        return click.IntRange(least, most)
    return Real(least if low is None else low, most, min_open=low is not None)
