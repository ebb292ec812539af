"""Messages: the errors that a user can cause, system failures converted to such errors,
and lines in a terminal.
"""

import difflib
import errno
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote, split
from typing import ClassVar, NamedTuple

_LONGEST_RECEIVED = 300  # characters of a received value that a message shows


class LitebertError(Exception):
    """An error that tells the user in up to four lines what is wrong and which command
    to run next.

    `code` names the mistake (`LB-…`, listed in docs/errors.md); `exit_code` is that of the
    command (see the subclasses). Errors are written for the shell; as a string, which is
    what Python shows, their options are parameters.

    >>> print(LitebertError("LB-000", "no such size", received="-1", expected="1 or more",
    ...                     next="litebert sizes"))
    LB-000: no such size
      received: -1
      expected: 1 or more
      next:     litebert sizes
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        code: str,
        what: str,
        *,
        received: object = None,
        expected: str | None = None,
        next: str = "",
    ) -> None:
        # lets pickle rebuild it in the process that started a worker
        super().__init__(code, hide_passwords(what))
        self.code = code
        self.what = hide_passwords(what)
        self.received = None if received is None else _as_line(str(received))
        self.expected = None if expected is None else hide_passwords(expected)
        self.next = hide_passwords(next)

    def __str__(self) -> str:
        return self._lines(
            in_python(self.what),
            in_python(self.expected or ""),
            advice_in_python(self.next),
        )

    def for_shell(self) -> str:
        """Return the lines as the shell shows them."""
        return self._lines(self.what, self.expected, self.next)

    def _lines(self, what: str, expected: str | None, advice: str) -> str:
        lines = [f"{self.code}: {escape_breaks(what)}"]
        details = {"received": self.received, "expected": expected, "next": advice}
        for name, value in details.items():
            if value:
                lines.append(f"  {name + ':':<9} {escape_breaks(value)}")
        return "\n".join(lines)


class RequestError(LitebertError):
    """A mistake in the request, not in the data."""


class NoVocabularyError(LitebertError):
    """A folder has no vocabulary, or none that litebert can use."""


class DamagedError(LitebertError):
    """The bytes of a file, corpus or checkpoint are not those that were written."""

    exit_code = 3


class ResourceError(LitebertError):
    """Memory or disk space has run out, or would."""

    exit_code = 4


class NonFiniteError(LitebertError):
    """Training produces NaN or infinity."""

    exit_code = 5


def no_such_name(
    code: str, what: str, name: str, known: Iterable[str], *, next: str
) -> LitebertError:
    """Return the error for an unknown name; it suggests the nearest known one."""
    return LitebertError(
        code, what, received=name, expected=did_you_mean(name, known), next=next
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest known name, or a list of all names if none is close.

    >>> did_you_mean("bsae-v2", ["base-v2", "large-v2"])
    'did you mean base-v2?'
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(names)}"


def missing_package(package: str, *, extra: str, needed_for: str) -> LitebertError:
    """Return the error that names the pip extra to install.

    >>> print(missing_package("ray", extra="cluster", needed_for="--cluster").next)
    pip install 'litebert[cluster]'
    """
    return LitebertError(
        "LB-305",
        f"{needed_for} needs the package {package}",
        received="not installed",
        next=f"pip install 'litebert[{extra}]'",
    )


def _as_line(received: str) -> str:
    """Return what was received as one line, cut at its end if it is long."""
    text = hide_passwords(received)
    # one more character than is shown tells that there are more
    line = escape_breaks(text[: _LONGEST_RECEIVED + 1])
    if len(line) <= _LONGEST_RECEIVED:
        return line
    return f"{line[:_LONGEST_RECEIVED]}… ({len(text):,} characters)"


def escape_breaks(text: str) -> str:
    """Escape line breaks and control characters, which file names may contain, as
    Python's strings do.
    """
    return escape_control(text).replace("\n", "\\n").replace("\t", "\\t")


# ---- the shell's words in Python -----------------------------------------------------

_FUNCTIONS = ("distil", "evaluate", "finetune", "glue", "predict", "pretrain")
_METHODS = (
    *("answer", "choose", "classify", "embed", "explain", "fill"),
    *("order", "score", "similar", "tag"),
)
_OF_TEXTS = ("classify", "embed", "fill", "score", "tag")
_PARAMETERS = {"from": "start", "column": "columns", "pair": "pairs"}
_WORDS = "mrpc|dev|test|classification|multi-label|blank-line"
_OPTION = re.compile(
    r"(?<![\w-])--(?!help\b|plugin\b|test\b)(?P<flag>[a-z][a-z0-9-]*)"
    # a name in capitals or a path, as ROLE=NAME, too; a number; a value of an option
    r"(?:[ =](?P<value>(?:[a-z]+=)?[A-Z][A-Z0-9_./=]*(?:,[A-Z…]+)*|[\w.-]*/[\w./-]+|\d[\d.]*\d"
    rf"|(?:{_WORDS})\b))?"
)
# one column or several, as ROLE=NAME, in quotes where the name has a space
_COLUMNS = re.compile(
    r"--column (?:'[^']+'|[a-z]+=[^\s;)'\"]+)"
    r"(?: --column (?:'[^']+'|[a-z]+=[^\s;)'\"]+))*"
)
# a setting with its value, in quotes where a shell needs them
_SETTING = re.compile(
    r"(?<![\w./'=])(?P<name>[a-z]+\.[a-z_]+)=(?P<value>'[^']*'|[\w+-]+(?:\.\w+)*)"
)
_SHELL = ("litebert", "torchrun")


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
    if text.startswith(_SHELL):
        return _as_call(text) or text
    advice = _COLUMNS.sub(_columns, text)
    return _OPTION.sub(_parameter, advice) if "--" in advice else advice


def advice_in_python(text: str) -> str:
    """Return an advice for Python, with settings as a parameter, too.

    >>> advice_in_python("to train without such rows: data.missing_labels=skip")
    "to train without such rows: settings={'data.missing_labels': 'skip'}"
    """
    return _SETTING.sub(_setting, in_python(text))


def _setting(assignment: re.Match[str]) -> str:
    value = "".join(split(assignment["value"]))
    settings = {assignment["name"]: value}
    return f"settings={settings!r}"


def _columns(options: re.Match[str]) -> str:
    words = [word for word in split(options[0]) if word != "--column"]
    return f"columns={words!r}"


def _parameter(option: re.Match[str]) -> str:
    flag = option["flag"]
    value = option["value"]
    name = _PARAMETERS.get(flag, flag.replace("-", "_"))
    if value is None:
        return f"{name}="
    return f"{name}={_value(name, value)}"


def _value(name: str, value: str) -> str:
    """Return the value of an option as Python's source."""
    if name == "columns":
        return repr([value])
    return value if re.fullmatch(r"[\d.]+", value) else repr(value)


def _as_call(command: str) -> str | None:
    """Return a command of the shell as a call in Python; None if Python has none, or if
    more than a command is there.
    """
    try:
        program, verb, *words = split(command)
    except ValueError:  # prose with an apostrophe, or a single word
        return None
    if verb in _FUNCTIONS and words == ["--help"]:
        return f"help(litebert.{verb})"
    if program != "litebert" or verb not in (*_FUNCTIONS, *_METHODS):
        return None
    if not {";", "or", "--help"}.isdisjoint(words):
        return None
    call = _CallWords.of(words)
    place = f"litebert.{verb}"
    if verb in _METHODS:
        if "output" in call.named:  # of files, which only the shell reads
            return None
        model = repr(call.named.pop("model")) if "model" in call.named else ""
        place = f"litebert.load({model}).{verb}"
    return f"{place}({', '.join(call.arguments(verb))})"


class _CallWords(NamedTuple):
    """The words of a command: plain ones (as Python's source), options, settings."""

    plain: list[str]
    named: dict[str, str]
    settings: dict[str, str]

    @classmethod
    def of(cls, words: Sequence[str]) -> "_CallWords":
        call = cls([], {}, {})
        remaining = iter(words)
        for word in remaining:
            key, equals, value = word.partition("=")
            if word.startswith("--"):
                flag = word[2:]
                name = _PARAMETERS.get(flag, flag.replace("-", "_"))
                call.named[name] = next(remaining, "")
            elif equals and re.fullmatch(r"[a-z]+\.[a-z_]+", key):
                call.settings[key] = value
            else:
                call.plain.append(repr(word))
        return call

    def arguments(self, verb: str) -> list[str]:
        """Return the arguments of a call; several texts or choices become a list."""
        arguments = list(self.plain)
        if verb == "choose":
            arguments = [self.plain[0], f"[{', '.join(self.plain[1:])}]"]
        elif verb in _OF_TEXTS and len(self.plain) > 1:
            arguments = [f"[{', '.join(self.plain)}]"]
        for name, value in self.named.items():
            arguments.append(f"{name}={_value(name, value)}")
        if self.settings:
            arguments.append(f"settings={self.settings!r}")
        return arguments


# ---- system failures: files, disk, memory --------------------------------------------

_LONGEST_PATH = 120  # characters of a path that an error shows
# of torch, CUDA and C++
_ALLOCATORS = (
    "not enough memory",
    "can't allocate memory",
    "out of memory",
    "bad_alloc",
)


def as_litebert_error(
    error: BaseException, *, unnamed: str = "the file"
) -> LitebertError | None:
    """Return the error for an ordinary system failure; None for a bug in the program.

    The outermost frame of a command calls this for any exception: missing or
    inaccessible files, full disks, exhausted memory (also in torch's allocators).
    `unnamed` says what an error is about that names no file.

    >>> as_litebert_error(FileNotFoundError(2, "No such file or directory", "a.txt")).code
    'LB-251'
    """
    if isinstance(error, LitebertError):
        return error
    if _is_out_of_memory(error):
        is_of_gpu = "CUDA" in str(error) or "MPS" in str(error)
        return ResourceError(
            "LB-007",
            "the GPU is out of memory" if is_of_gpu else "out of memory",
            received=str(error) or type(error).__name__,
            next="lower train.micro_batch_size or --batch-size, or use a smaller model",
        )
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return _system_error(error, unnamed=unnamed)
    return None


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether the system or an allocator had no memory left."""
    if isinstance(error, RuntimeError):
        return any(message in str(error) for message in _ALLOCATORS)
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn system errors (an OSError with an errno) while `path` is being written into
    one message with advice.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise _system_error(error, path) from error


def _system_error(
    error: OSError, written: Path | None = None, *, unnamed: str = "the file"
) -> LitebertError:
    """Return the error for a system failure; `written` is the path that was being
    written, if any, and `unnamed` says what else it may be about.
    """
    path = written
    if isinstance(error.filename, str | bytes) and error.filename:
        path = Path(os.fsdecode(error.filename))
    name = unnamed
    look = "check the paths that the command names"
    if path is not None:
        name = str(path)
        if len(name) > _LONGEST_PATH:
            name = f"{name[:_LONGEST_PATH]}…"
        look = f"ls -ld {quote(str(_deepest_existing(path)))}"
    said = error.strerror or str(error) or type(error).__name__
    number = error.errno
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        received = said
        if path is not None:
            received = f"{free_bytes(written or path):,} bytes free"
        return ResourceError(
            "LB-001",
            f"the disk is full while writing {name}",
            received=received,
            next="free some space or choose another folder, then rerun; nothing"
            " incomplete has its final name",
        )
    if number in (errno.EACCES, errno.EROFS, errno.EPERM):
        return LitebertError(
            "LB-250", f"no permission to read or write {name}", received=said, next=look
        )
    if number == errno.ENOENT:
        return LitebertError(
            "LB-251", f"{name} does not exist", received=said, next=look
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return ResourceError(
            "LB-254", "too many files are open", received=said, next="ulimit -n 4096"
        )
    return LitebertError(
        "LB-255", f"the system cannot read or write {name}", received=said, next=look
    )


def _deepest_existing(path: Path) -> Path:
    for place in (path, *path.absolute().parents):
        if os.path.lexists(place):
            return place
    return Path.cwd()


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that holds `path` or its nearest existing
    parent.
    """
    import shutil  # takes 5 ms, which `--help` should not spend

    return shutil.disk_usage(_deepest_existing(path)).free


# ---- lines and progress bars in a terminal; control characters in a text never reach it

_CLEAR = "\r\x1b[K"
_BAR = 30


def escape_control(text: str) -> str:
    r"""Return a text with control and direction characters escaped; line breaks and
    tabs stay.

    The escapes are those of JSON, so JSON text keeps its meaning.

    >>> escape_control("red \x1b[31m\n")
    'red \\u001b[31m\n'
    """
    if text.isascii() and text.isprintable():
        return text
    # unprintable but harmless: spaces, private use, unassigned
    kept = ("Zs", "Zl", "Zp", "Co", "Cn")
    characters = list[str]()
    for character in text:
        is_shown = character.isprintable() or unicodedata.category(character) in kept
        if character in "\n\t" or is_shown:
            characters.append(character)
        else:
            characters.append(json.dumps(character)[1:-1])
    return "".join(characters)


# user:password@ in a URL; a password may have a slash or an @ in it
_PASSWORD = re.compile(r"(://[^\s:/@]*:)\S+(?=@)")
# in the query of a URL, as of one that is signed
_SECRET = re.compile(
    r"((?:[?&]|%3F|%26)[\w.%-]*(?:sig|token|key|secret|password|credential)[\w.%-]*=)[^\s&#'\"]+",
    re.IGNORECASE,
)


def hide_passwords(text: str) -> str:
    """Return a text without the passwords and signatures of the URLs in it.

    >>> hide_passwords("no s3://me:secret@host/a?token=x&part=2, nor http://host:80/")
    'no s3://me:***@host/a?token=***&part=2, nor http://host:80/'
    """
    if "://" not in text:
        return text
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1***", text))


def format_count(number: int, what: str) -> str:
    """Format a count for people.

    >>> format_count(1, "layer"), format_count(3_000, "row")
    ('1 layer', '3,000 rows')
    """
    plural = "" if number == 1 else "s"
    return f"{number:,} {what}{plural}"


def format_duration(seconds: float) -> str:
    """Format a time span for people.

    >>> format_duration(75), format_duration(7_260), format_duration(500_000)
    ('1m15s', '2h01m', '5.8 days')
    """
    num_minutes, left_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(num_minutes, 60)
    if hours >= 100:
        return f"{hours / 24:,.1f} days"
    if hours > 0:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{left_seconds:02d}s"


def say(text: str) -> None:
    """Print a line on stderr, replacing the status line if there is one."""
    clear = _CLEAR if is_terminal() else ""
    _write_stderr(f"{clear}{escape_control(hide_passwords(text))}\n")


def show_status(done: int, total: int, text: str) -> None:
    """Redraw the progress bar and its text; do nothing if stderr is not a terminal."""
    if not is_terminal():
        return
    import shutil

    share = min(1.0, done / max(1, total))
    bar = "━" * round(share * _BAR)
    line = f"{bar:<{_BAR}}  {share:4.0%}  {escape_control(text)}"
    _write_stderr(f"{_CLEAR}{line[: shutil.get_terminal_size().columns - 1]}")


def is_terminal() -> bool:
    """Return whether stderr is a terminal, which may have gone away."""
    try:
        return sys.stderr.isatty()
    except (OSError, ValueError):  # closed
        return False


def _write_stderr(text: str) -> None:
    """Write to stderr; if that fails, go on silently, since no job should end for it.

    Nobody reads a pipe any more, as in `2>&1 | head`; a terminal went away, as after
    `disown`; the disk of a log is full.
    """
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        _silence_stderr()


def _silence_stderr() -> None:
    # what the stream still holds would fail again when the process ends
    with suppress(OSError, ValueError):  # a stream of a notebook has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
