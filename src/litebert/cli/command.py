"""Commands of the shell, made from functions.

The signature defines everything: positional parameters become arguments, keyword-only
ones options, and types become checks. `Annotated` adds the limits of a number
(`Ge(1)`), the name of an option if it differs from the parameter's ("--column"), and
its help. What a command writes, `output`, may be given as an argument or as --output,
unless there are several inputs. The docstring is the help of the command. A parameter
with a dataclass as its type adds an option for each field. The return value is printed:
as `str(result)` for people, or in one of its `formats`, such as JSON with --json. Its
`notes` go to stderr, and a nonzero `exit_code` ends the process.
"""

import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import click
from annotated_types import Ge, Gt, Le

from litebert.errors import NonFiniteError, escape_control, say
from litebert.launch import launched_as

ABSENT: Any = inspect.Parameter.empty
PRINTED = {"json": "JSON", "csv": "CSV", "markdown": "Markdown"}
Record = TypeVar("Record")


def command_of(function: Callable[..., object], name: str) -> click.Command:
    """Return the command made from a function."""
    caller = _Caller(function)
    returned = caller.hints.get("return", NoneType)

    def run(written_as: str | None = None, **values: Any) -> None:
        present(caller.call(values), written_as)

    return TextCommand(
        name,
        callback=run,
        params=[*caller.params, *_format_options(returned)],
        help=help_of(function.__doc__ or ""),
    )


class _Caller:
    """The parameters of a command, and the call of its function with what was typed."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self.signature = inspect.signature(function)
        self.hints = get_type_hints(function, include_extras=True)
        self.writes_one = _takes_output_as_word(self.signature, self.hints)
        self.records = dict[str, type]()  # by the parameter that takes them
        self.texts: click.Argument | None = None  # the argument with several words
        self.params = list[click.Parameter]()
        for parameter in self.signature.parameters.values():
            self.params += self._params_of(parameter)

    def _params_of(self, parameter: inspect.Parameter) -> list[click.Parameter]:
        """Return the arguments and options for one parameter of the function."""
        name = parameter.name
        hint = self.hints[name]
        default = parameter.default
        if isinstance(hint, type) and is_dataclass(hint):
            self.records[name] = hint
            return options_of(hint)
        if name == "settings":
            return self._settings_params()
        if name == "output" and self.writes_one:
            return argument_or_option(name, hint)
        if parameter.kind is parameter.KEYWORD_ONLY:
            return [option(name, hint, default)]
        if parameter.kind is parameter.VAR_POSITIONAL:
            hint = GenericAlias(tuple, (hint, ...))
            default = ()
        word = argument(name, hint, default)
        if word.nargs == -1:
            self.texts = word
        return [word]

    def _settings_params(self) -> list[click.Parameter]:
        """Return the argument for KEY=VALUE; none, if the words of another argument may
        be settings.
        """
        if self.texts is None:
            metavar = "[KEY=VALUE]..."
            return [click.Argument(["settings"], nargs=-1, metavar=metavar)]
        self.texts.metavar = f"[{str(self.texts.name).upper()}]... [KEY=VALUE]..."
        return []

    def call(self, values: dict[str, Any]) -> object:
        """Call the function with the values that click has parsed, by name."""
        for name, record in self.records.items():
            values[name] = take_record(record, values)
        if "settings" in self.signature.parameters and self.texts is not None:
            name = str(self.texts.name)
            words = values[name]
            values["settings"] = tuple(word for word in words if is_setting(word))
            values[name] = tuple(word for word in words if not is_setting(word))
        if self.writes_one:
            values["output"] = take_argument_or_option("output", values)
        bound = inspect.BoundArguments(self.signature, values)
        return self.function(*bound.args, **bound.kwargs)


def _takes_output_as_word(signature: inspect.Signature, hints: dict[str, Any]) -> bool:
    """Return whether a command writes an output that it needs, from one input."""
    output = signature.parameters.get("output")
    if output is None or output.default is not ABSENT:
        return False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return False
        is_word = parameter.kind is not parameter.KEYWORD_ONLY
        if is_word and _parse_hint(hints[parameter.name]).is_several:
            return False
    return True


def _format_options(returned: Any) -> list[click.Option]:
    """Return a flag for each format besides text in which a result can be printed."""
    if returned in (NoneType, str):
        return []
    options = list[click.Option]()
    for name in getattr(returned, "formats", ("json",)):
        meaning = f"Print {PRINTED[name]}."
        flag = [f"--{name}", "written_as"]
        options.append(click.Option(flag, flag_value=name, help=meaning))
    return options


# ---- arguments and options -----------------------------------------------------------


@dataclass(frozen=True)
class _Hint:
    """What the type of a parameter says: the type of one value, and the notes."""

    kind: Any
    is_several: bool = False
    is_optional: bool = False
    notes: tuple[Any, ...] = ()

    @property
    def meaning(self) -> str:
        """The help of an option."""
        for note in self.notes:
            if isinstance(note, str) and not note.startswith("--"):
                return note
        return ""

    def flag(self, name: str) -> str:
        """Return the option for a parameter: as noted, or as the parameter's name."""
        for note in self.notes:
            if isinstance(note, str) and note.startswith("--"):
                return note
        return f"--{name.replace('_', '-')}"


def _parse_hint(hint: Any) -> _Hint:
    """Return what a type says; of a union, str if it is a member, otherwise the first."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *notes = get_args(hint)
        parsed = _parse_hint(inner)
        return replace(parsed, notes=(*notes, *parsed.notes))
    if origin in (tuple, list, Sequence):
        return replace(_parse_hint(get_args(hint)[0]), is_several=True)
    if origin in (Union, UnionType):
        return _parse_union(get_args(hint))
    return _Hint(hint)


def _parse_union(types: Sequence[Any]) -> _Hint:
    members = [_parse_hint(member) for member in types if member is not NoneType]
    kinds = [member.kind for member in members]
    notes = list[Any]()
    for member in members:
        notes += member.notes
    kind = str if str in kinds else kinds[0]
    return _Hint(
        kind=kind,
        is_several=any(member.is_several for member in members),
        is_optional=NoneType in types,
        notes=tuple(notes),
    )


def options_of(record: type) -> list[click.Parameter]:
    """Return an option for each field of a dataclass."""
    hints = get_type_hints(record, include_extras=True)
    options = list[click.Parameter]()
    for field in fields(record):
        default = ABSENT if field.default is MISSING else field.default
        options.append(option(field.name, hints[field.name], default))
    return options


def take_record(record: type[Record], values: dict[str, Any]) -> Record:
    """Return a record made from the options of its fields, and take these out of
    `values`.
    """
    names = [field.name for field in fields(record)]  # type: ignore[arg-type]
    return record(**take(values, names))


def take(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Remove these values and return them."""
    return {name: values.pop(name) for name in names}


def option(name: str, hint: Any, default: Any) -> click.Option:
    """Return the option for a keyword-only parameter."""
    parsed = _parse_hint(hint)
    flag = parsed.flag(name)
    if parsed.kind is bool:
        # one that may be None, for "not given", can also be switched off
        switch = f"{flag}/--no-{flag[2:]}" if parsed.is_optional else flag
        return click.Option(
            [switch, name], is_flag=True, default=default, help=parsed.meaning
        )
    is_list = parsed.kind is int and parsed.is_several  # of whole numbers: 1,2,3
    has_default = default is not None and default is not ABSENT
    # without one, click chooses: () for several values, None for one
    defaults = {"default": default} if has_default else {}
    type_ = numbers if is_list else _type_of(parsed)
    return click.Option(
        [flag, name],
        type=type_,
        multiple=parsed.is_several and not is_list,
        show_default=has_default and default not in ("", (), []),
        required=Required in parsed.notes or default is ABSENT,
        help=parsed.meaning,
        **defaults,
    )


def argument(name: str, hint: Any, default: Any = ABSENT) -> click.Argument:
    """Return the argument for a positional parameter."""
    parsed = _parse_hint(hint)
    is_required = Required in parsed.notes or default is ABSENT
    metavar = name.upper()
    if parsed.is_several:
        metavar += "..."
    if not is_required:
        metavar = f"[{metavar}]"
    has_default = not is_required and not parsed.is_several
    defaults = {"default": default} if has_default else {}
    num_values = -1 if parsed.is_several else 1  # -1: any number
    return click.Argument(
        [name],
        type=_type_of(parsed),
        nargs=num_values,
        required=is_required,
        metavar=metavar,
        **defaults,
    )


def argument_or_option(name: str, hint: Any) -> list[click.Parameter]:
    """Return an argument and an option for one value, which `take_argument_or_option` reads."""
    parsed = _parse_hint(hint)
    kind = _type_of(parsed)
    word = click.Argument([name], type=kind, required=False, metavar=name.upper())
    names = [f"--{name}", f"{name}_option"]
    meaning = parsed.meaning or f"Another way to give {name.upper()}."
    return [word, click.Option(names, type=kind, help=meaning)]


def take_argument_or_option(
    name: str, values: dict[str, Any], *, is_needed: bool = True
) -> Any:
    """Return what was typed for `name`, as an argument or as an option; take the option
    out of `values`.
    """
    word = values[name]
    flag = values.pop(f"{name}_option")
    if word is not None and flag is not None:
        raise click.UsageError(
            f"give {name.upper()} once: as an argument or as --{name}"
        )
    if word is None and flag is None and is_needed:
        raise click.UsageError(f"Missing argument '{name.upper()}'")
    return flag if word is None else word


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


def present(result: object, written_as: str | None = None) -> None:
    """Print what a function returned (of several processes, only in the first); end the
    process if it failed.
    """
    if result is not None and launched_as().rank == 0:
        _show_result(result, written_as)
        for note in getattr(result, "notes", ()):
            say(note)
    exit_code = getattr(result, "exit_code", 0)
    if exit_code:
        sys.exit(exit_code)


def _show_result(result: object, written_as: str | None) -> None:
    if written_as == "json":
        show_json(result, indent=2)
        return
    text = str(result)
    if written_as is not None:
        text = getattr(result, f"as_{written_as}")()
    if text:
        show(text)


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
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError as error:
        raise NonFiniteError(
            "LB-928",
            "a result is NaN or infinity, which JSON cannot hold",
            next="print it without --json, and check the weights and the data for"
            " damage",
        ) from error
    show(text)


def as_json(value: Any) -> Any:
    """Return a value as JSON can hold it: what its `as_json` returns, if it has that;
    arrays become lists.
    """
    from pydantic_core import to_jsonable_python

    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    plain = value.as_json() if hasattr(value, "as_json") else value
    return to_jsonable_python(plain, fallback=lambda array: array.tolist())


# ---- parsing words into values -------------------------------------------------------

_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*(=.*)?", re.DOTALL)
# marks a text for the parser; no argument of a process can contain this character
_MARK = "\0"


class TextCommand(click.Command):
    """A command for texts: an argument that cannot be an option's name is a text, even
    if it starts with a dash.
    """

    def make_parser(self, ctx: click.Context) -> Any:
        """Return click's parser, for which texts are marked; what it returns has no
        marks, so that neither types nor messages meet them.
        """
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_marked(args: list[str]) -> tuple[Any, list[str], Any]:
            values, extra, order = parse(self._mark_texts(args))
            plain = {name: _unmark(value) for name, value in values.items()}
            return plain, [_unmark(word) for word in extra], order

        parser.parse_args = parse_marked  # type: ignore[method-assign]
        return parser

    def _mark_texts(self, args: list[str]) -> list[str]:
        """Return the arguments with a mark before each text that starts with a dash."""
        end = args.index("--") if "--" in args else len(args)
        options_with_value = self._options_with_value()
        marked = list[str]()
        previous = ""
        for word in args[:end]:
            is_value = previous in options_with_value
            if _is_dashed_text(word) and not is_value:
                marked.append(_MARK + word)
            else:
                marked.append(word)
            previous = word
        return marked + args[end:]

    def _options_with_value(self) -> set[str]:
        """Return the options that take the word after them as their value."""
        names = set[str]()
        for param in self.params:
            if isinstance(param, click.Option) and not param.is_flag:
                names.update(param.opts)
        return names


def _is_dashed_text(word: str) -> bool:
    """Return whether a word starts with a dash and is not an option.

    >>> [_is_dashed_text(word) for word in ("- no.", "-5", "--top", "-")]
    [True, True, False, False]
    """
    is_dashed = word.startswith("-") and word != "-"
    return is_dashed and not _OPTION.fullmatch(word)


def _unmark(value: Any) -> Any:
    """Return the words of a parameter without the mark of a text."""
    if isinstance(value, tuple):
        return tuple(_unmark(word) for word in value)
    if isinstance(value, str):
        return value.removeprefix(_MARK)
    return value


class Real(click.FloatRange):
    """A number within limits; unlike click's type, it refuses NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


def numbers(words: Any) -> Any:
    """Parse whole numbers: 1,2,3. Anything but a string is a default, which needs no
    parsing.
    """
    if not isinstance(words, str):
        return words
    if not re.fullmatch(r"\d+(,\d+)*", words):
        raise click.BadParameter(
            f"{words!r} is not a list of whole numbers from 0, such as 1,2,3"
        )
    return tuple(int(word) for word in words.split(","))


def _type_of(hint: _Hint) -> Any:
    """Return the type of one value, as click checks it."""
    kind = hint.kind
    if get_origin(kind) is Literal:
        return click.Choice(list(get_args(kind)))
    if kind not in (int, float):
        return Path if kind is Path else str
    low: Any = None
    high: Any = None
    is_open = False  # whether the lowest value itself is refused
    for note in hint.notes:
        if isinstance(note, Ge):
            low = note.ge
        elif isinstance(note, Gt):
            low = note.gt
            is_open = True
        elif isinstance(note, Le):
            high = note.le
    if low is None and high is None:
        return kind
    if kind is int:
        return click.IntRange(low, high, min_open=is_open)
    return Real(low, high, min_open=is_open)
