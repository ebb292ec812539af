"""The error that every mistake of a user becomes, and its kinds."""

import difflib
from collections.abc import Iterable
from typing import ClassVar

from litebert.errors.advice import advice_in_python, in_python
from litebert.errors.terminal import escape_breaks, hide_passwords

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
        return _four_lines(
            self.code,
            in_python(self.what),
            received=self.received,
            expected=in_python(self.expected or ""),
            next=advice_in_python(self.next),
        )

    def for_shell(self) -> str:
        """Return the lines as the shell shows them."""
        return _four_lines(
            self.code,
            self.what,
            received=self.received,
            expected=self.expected,
            next=self.next,
        )


def _four_lines(code: str, what: str, **details: str | None) -> str:
    """Return the lines of an error; details that it does not have are left out."""
    lines = [f"{code}: {escape_breaks(what)}"]
    for name, value in details.items():
        if value:
            label = f"{name}:"
            lines.append(f"  {label:<9} {escape_breaks(value)}")
    return "\n".join(lines)


def _as_line(received: str) -> str:
    """Return what was received as one line, cut at its end if it is long."""
    text = hide_passwords(received)
    # one more character than is shown tells that there are more
    line = escape_breaks(text[: _LONGEST_RECEIVED + 1])
    if len(line) <= _LONGEST_RECEIVED:
        return line
    return f"{line[:_LONGEST_RECEIVED]}… ({len(text):,} characters)"


# ---- kinds of errors, by the exit code of the command --------------------------------


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


# ---- errors that are made in several places ------------------------------------------


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
