"""Advice for Python, made from advice for the shell.

Errors are written for the shell: `litebert fill TEXT --model PATH`, `add --split dev`.
Whoever calls litebert from Python needs `litebert.load(PATH).fill(TEXT)` and
`split='dev'`. A text that is a command becomes a call; in any other text, options and
settings become parameters.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import split

_FUNCTIONS = ("distil", "evaluate", "finetune", "glue", "predict", "pretrain")
_METHODS = (
    *("answer", "choose", "classify", "embed", "explain", "fill"),
    *("order", "score", "similar", "tag"),
)
_OF_TEXTS = ("classify", "embed", "fill", "score", "tag")  # of one text or a list
# parameters that are not called like their options
_PARAMETERS = {"from": "start", "column": "columns", "pair": "pairs"}

_OPTION = re.compile(
    r"""
    (?<![\w-])
    --(?!help\b|plugin\b|test\b)  # those are not for Python
    (?P<flag>[a-z][a-z0-9-]*)
    (?:
        [ =]
        (?P<value>
            (?:[a-z]+=)?[A-Z][A-Z0-9_./=]*(?:,[A-Z…]+)*  # NAME, ROLE=NAME, NAME,NAME…
            | [\w.-]*/[\w./-]+                           # a path
            | \d[\d.]*\d                                 # a number
            | (?:mrpc|dev|test|classification|multi-label|blank-line)\b
        )
    )?
    """,
    re.VERBOSE,
)
# --column ROLE=NAME, once or several times, in quotes where the name has a space
_COLUMNS = re.compile(
    r"""
    --column[ ](?:'[^']+'|[a-z]+=[^\s;)'"]+)
    (?:[ ]--column[ ](?:'[^']+'|[a-z]+=[^\s;)'"]+))*
    """,
    re.VERBOSE,
)
# section.name=value, in quotes where a shell needs them
_SETTING = re.compile(
    r"""
    (?<![\w./'=])
    (?P<name>[a-z]+\.[a-z_]+)
    =
    (?P<value>'[^']*'|[\w+-]+(?:\.\w+)*)
    """,
    re.VERBOSE,
)


def in_python(text: str) -> str:
    """Return an advice for Python: a command of the shell becomes a call, an option its
    parameter.

    >>> in_python("litebert finetune mrpc --data FOLDER train.steps=9")
    "litebert.finetune('mrpc', data='FOLDER', settings={'train.steps': '9'})"
    >>> in_python('litebert fill "A [MASK]." --model runs/mine')
    "litebert.load('runs/mine').fill('A [MASK].')"
    >>> in_python("omit --on, or choose another --name; --column label=NAME")
    "omit on=, or choose another name=; columns=['label=NAME']"
    """
    if text.startswith(("litebert", "torchrun")):
        call = _as_call(text)
        return text if call is None else call
    return _OPTION.sub(_parameter, _COLUMNS.sub(_columns, text))


def advice_in_python(text: str) -> str:
    """Return an advice for Python, with settings as a parameter, too.

    >>> advice_in_python("to train without such rows: data.missing_labels=skip")
    "to train without such rows: settings={'data.missing_labels': 'skip'}"
    """
    return _SETTING.sub(_settings, in_python(text))


# ---- options in a sentence -----------------------------------------------------------


def _settings(setting: re.Match[str]) -> str:
    value = "".join(split(setting["value"]))
    settings = {setting["name"]: value}
    return f"settings={settings!r}"


def _columns(options: re.Match[str]) -> str:
    columns = [word for word in split(options[0]) if word != "--column"]
    return f"columns={columns!r}"


def _parameter(option: re.Match[str]) -> str:
    name = _parameter_of(option["flag"])
    value = option["value"]
    if value is None:
        return f"{name}="
    return f"{name}={_as_source(name, value)}"


def _parameter_of(flag: str) -> str:
    """Return the name of an option's parameter."""
    return _PARAMETERS.get(flag, flag.replace("-", "_"))


def _as_source(name: str, value: str) -> str:
    """Return the value of a parameter as Python's source."""
    if name == "columns":
        return repr([value])
    return value if re.fullmatch(r"[\d.]+", value) else repr(value)


# ---- commands ------------------------------------------------------------------------


def _as_call(command: str) -> str | None:
    """Return a command of the shell as a call in Python; None if Python has none, or if
    more than a command is there.
    """
    try:
        program, verb, *words = split(command)
    except ValueError:  # prose with an apostrophe, or a single word
        return None
    if program != "litebert" or verb not in (*_FUNCTIONS, *_METHODS):
        return None
    if verb in _FUNCTIONS and words == ["--help"]:
        return f"help(litebert.{verb})"
    if not {";", "or", "--help"}.isdisjoint(words):
        return None
    arguments = _Arguments.read(words)
    function = f"litebert.{verb}"
    if verb in _METHODS:
        if "output" in arguments.named:  # of files, which only the shell reads
            return None
        model = arguments.named.pop("model", None)
        path = "" if model is None else repr(model)
        function = f"litebert.load({path}).{verb}"
    return f"{function}({', '.join(arguments.as_source(verb))})"


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a command."""

    texts: list[str]  # as Python's source
    named: dict[str, str]
    settings: dict[str, str]

    @classmethod
    def read(cls, words: Sequence[str]) -> "_Arguments":
        """Read the words after the verb."""
        arguments = cls([], {}, {})
        remaining = iter(words)
        for word in remaining:
            key, equals, value = word.partition("=")
            if word.startswith("--"):
                name = _parameter_of(word[2:])
                arguments.named[name] = next(remaining, "")
            elif equals and re.fullmatch(r"[a-z]+\.[a-z_]+", key):
                arguments.settings[key] = value
            else:
                arguments.texts.append(repr(word))
        return arguments

    def as_source(self, verb: str) -> list[str]:
        """Return the arguments of a call; several texts or choices become a list."""
        source = self.texts
        if verb == "choose":
            source = [self.texts[0], _list_of(self.texts[1:])]
        elif verb in _OF_TEXTS and len(self.texts) > 1:
            source = [_list_of(self.texts)]
        named = [f"{name}={_as_source(name, self.named[name])}" for name in self.named]
        settings = [f"settings={self.settings!r}"] if self.settings else []
        return [*source, *named, *settings]


def _list_of(source: Sequence[str]) -> str:
    return f"[{', '.join(source)}]"
