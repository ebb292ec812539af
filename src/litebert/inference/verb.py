"""What a verb is: one record, which everything reads that offers verbs.

The record names a function, `Model.fill` for example. From the parameters of that
function follow the arguments and options of the shell, the columns of a file and the
fields of a request:

    def answer(self, question, context, *, top=1): ...

    litebert answer QUESTION --context TEXT --top 1
    a file with the columns question and context
    {"question": ..., "context": ..., "top": 1}

Parameters before the `*` are what is read: their texts make a row, a mapping from role
to text. Parameters after the `*` are options. These names of parameters have a meaning:
`text` and `texts` are the column text, of which the shell takes several; with `texts`,
so does a request. `pairs` are second texts, one for each text; `choices` are the columns
choice1 to choice32; `context` is an option of the shell.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pkgutil import resolve_name
from shlex import quote
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

from litebert.errors import RequestError

if TYPE_CHECKING:
    from litebert.inference.model import Model

Row: TypeAlias = Mapping[str, str]
Named: TypeAlias = "Callable[..., Any] | str"
"""A function, or the place of one, `module:name`, which is imported when it is needed:
the list of verbs must not load torch.
"""
# the columns of the choices of a question, at most 32
CHOICES = tuple(f"choice{number}" for number in range(1, 33))
# arguments that hold several texts, and the role of each text in a row
SEVERAL = {"texts": "text", "pairs": "second"}
TASK = "task"
"""What a verb needs that answers with the head of a fine-tuned model."""


@dataclass(frozen=True)
class Field:
    """A field of the form on the page that `litebert serve` shows."""

    label: str
    num_lines: int = 1
    is_optional: bool = False


@dataclass(frozen=True)
class Form:
    """What the page shows of a verb: a title, a sentence, fields by the name of an
    argument, and examples to choose from.
    """

    title: str
    lead: str
    fields: Mapping[str, Field]
    examples: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class Verb:
    """One thing that a model can be asked.

    `function` takes the model and the arguments, and `answers` many rows together; by
    default that is a call with all texts, or a call for each row.
    """

    name: str
    function: Named
    summary: str  # in `litebert --help`
    answer_type: Any  # of one row, as JSON has it
    example: Mapping[str, Any]  # arguments by name
    # what it needs: a pretraining head by name, TASK, or "" for any model
    needs: str = ""
    purpose: str = ""  # of that pretraining head, in a model's card
    help: str = ""  # for the shell; by default the docstring
    commands: tuple[str, ...] = ()  # examples for the shell, without `litebert`
    # (model, rows, options by name) -> an answer for each row
    answers: Callable[..., Iterable[Any]] | None = None
    line: Callable[[Row, Any], str] = field(default=lambda _, answer: str(answer))
    title: str = ""  # the role that stands above the answer to a row of a file
    question: Named = ""  # what `explain` explains, if it can
    # the verb that it is a use of: it has no route, and `Model.verbs` names the other
    use_of: str = ""
    is_cut: bool = False  # what is longer than the model reads is cut at its end
    is_slow: bool = False  # takes a pass for each token: servers take short texts
    lists_one: bool = False  # --json of one typed text is a list
    form: Form | None = None
    # the output of an exported network from which a page without a server answers
    exported: str = ""

    # ---- the function ----------------------------------------------------------------

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The function: the model, the texts, options by name -> an answer."""
        return load_named(self.function)

    @property
    def is_stream(self) -> bool:
        """Whether the function yields an answer for each text as it reads them, so that
        the texts may be endless.
        """
        return inspect.isgeneratorfunction(self.call)

    @cached_property
    def inputs(self) -> dict[str, inspect.Parameter]:
        """The parameters that are read: those before the `*`, without the model."""
        inputs = dict[str, inspect.Parameter]()
        _, *parameters = inspect.signature(self.call).parameters.values()
        for parameter in parameters:
            if parameter.kind is not parameter.KEYWORD_ONLY:
                inputs[parameter.name] = parameter
        return inputs

    @cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """The parameters after the `*`; their types and notes are checks and help."""
        options = dict[str, inspect.Parameter]()
        for parameter in inspect.signature(self.call).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                options[parameter.name] = parameter
        options.pop("progress", None)  # for callers in Python
        return options

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The types of the inputs and the options, with their notes."""
        function = inspect.unwrap(self.call)
        # Without those of the model and the answer, which may be names for mypy only
        annotations = dict[str, Any]()
        for name in (*self.inputs, *self.options):
            if name in function.__annotations__:
                annotations[name] = function.__annotations__[name]
            elif name in self.options:
                raise TypeError(f"the option {name} of {self.name} needs a type")
        holder = SimpleNamespace(__annotations__=annotations)
        return get_type_hints(holder, function.__globals__, include_extras=True)

    def find_problem(self) -> str:
        """Say why the record cannot be added to the verbs; "" if it can."""
        try:
            names = [*self.inputs, *self.hints]
        except (AttributeError, NameError, TypeError, ValueError) as error:
            return str(error)
        if not names:
            return "its function has no parameter besides the model"
        if self.is_stream and names[0] != "texts":
            return "its function yields, so its first parameter must be texts"
        return ""

    @property
    def takes_list(self) -> bool:
        """Whether one call takes several texts and gives as many answers."""
        return "texts" in self.inputs

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The parts of a row, which are the columns of a file."""
        names = [SEVERAL.get(name, name) for name in self.inputs if name != "choices"]
        if "choices" in self.inputs:
            names += CHOICES
        return tuple(names)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The roles without which a row cannot be answered."""
        roles = list[str]()
        for name, parameter in self.inputs.items():
            is_required = parameter.default is parameter.empty
            if is_required and name != "choices":
                roles.append(SEVERAL.get(name, name))
        return tuple(roles)

    def ask(self, model: "Model", *texts: Any, **options: Any) -> Any:
        """Call the function, after a check of what Python gave it; in the shell and
        over HTTP, the types of the parameters are checked on the way.
        """
        call = inspect.signature(self.call).bind(model, *texts, **options)
        streamed = call.arguments.get("texts")
        if self.is_stream and isinstance(streamed, str):
            raise RequestError(
                "LB-546",
                f"{self.name} reads a list of texts, or an iterator of them",
                received=f"one text, {streamed!r:.100}",
                next=f"model.{self.name}([{streamed!r:.100}])",
            )
        for name in self.options:
            if name in call.arguments:
                self._check_option(name, call.arguments[name])
        return self.call(model, *texts, **options)

    def _check_option(self, name: str, value: Any) -> None:
        from pydantic import TypeAdapter, ValidationError

        try:
            TypeAdapter[Any](self.hints[name]).validate_python(value)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            raise RequestError(
                "LB-542",
                f"{name} of {self.name} cannot have this value",
                received=repr(value),
                expected=problem.removeprefix("Input should be "),
                next=f"omit {name}",
            ) from error

    # ---- rows and answers ------------------------------------------------------------

    def rows(self, arguments: Mapping[str, Any]) -> list[dict[str, str]]:
        """Return the rows that the arguments of one call give; None is no argument."""
        texts = arguments.get("texts")
        if texts is not None:
            rows = [{"text": text} for text in texts]
            seconds = arguments.get("pairs") or ()
            for row, second in zip(rows, seconds, strict=bool(seconds)):
                row["second"] = second
            return rows
        row = dict[str, str]()
        for name in self.inputs:
            value = arguments.get(name)
            if name == "choices":
                row |= zip(CHOICES, value or (), strict=False)
            elif value is not None:
                row[name] = value
        return [row]

    def answer(
        self, model: "Model", rows: Iterable[Row], **options: Any
    ) -> Iterable[Any]:
        """Return an answer for each row, in order; a stream takes endless rows."""
        if self.answers is not None:
            return self.answers(model, rows, **options)
        if self.is_stream:
            answers: Iterator[Any]
            answers = self.call(model, (row["text"] for row in rows), **options)
            return answers
        listed = list(rows)
        if self.roles[0] == "text":
            columns = [column(listed, role) for role in self.roles]
            return list(self.call(model, *columns, **options))
        return [self._answer_row(model, row, options) for row in listed]

    def _answer_row(self, model: "Model", row: Row, options: Mapping[str, Any]) -> Any:
        arguments: dict[str, Any] = {}
        for name in self.inputs:
            if name == "choices":
                arguments[name] = choices_of(row)
            elif name in row:
                arguments[name] = row[name]
        return self.call(model, **arguments, **options)

    # ---- examples --------------------------------------------------------------------

    @property
    def in_python(self) -> str:
        """The example as a call, which follows `model.`"""
        arguments = list[str]()
        for name, value in self.example.items():
            written = _python(value)
            if self._is_option_of_shell(name):
                written = f"{name}={written}"
            arguments.append(written)
        return f"{self.name}({', '.join(arguments)})"

    @property
    def in_shell(self) -> str:
        """The example as a command, which follows `litebert`."""
        words = [self.name]
        for name, value in self.example.items():
            texts = [value] if isinstance(value, str) else list(value)
            for text in texts:
                if name == "pairs":  # one option for each
                    words.append("--pair")
                elif self._is_option_of_shell(name):
                    words.append(f"--{name}")
                words.append(_shell(text))
        return " ".join(words)

    def _is_option_of_shell(self, name: str) -> bool:
        return name == "pairs" or (name == "context" and name not in self.needed)


def load_named(function: Named) -> Callable[..., Any]:
    """Return a function, imported if it is given by its place."""
    if not isinstance(function, str):
        return function
    loaded: Callable[..., Any] = resolve_name(function)
    return loaded


def column(rows: Iterable[Row], role: str) -> list[str]:
    """Return the texts of one role; a row without it has an empty one."""
    return [row.get(role, "") for row in rows]


def choices_of(row: Row) -> list[str]:
    """Return the choices of a row."""
    return [row[name] for name in CHOICES if name in row]


def _python(value: Any) -> str:
    """Return texts as Python writes them, in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"[{', '.join(map(_python, value))}]"


def _shell(text: str) -> str:
    """Return a text as one word of a shell, in double quotes if it needs any and they
    suffice.
    """
    quoted = quote(text)
    # a shell replaces these in double quotes, too
    has_marks = any(mark in text for mark in '"$`\\!')
    if quoted == text or has_marks:
        return quoted
    return f'"{text}"'
