"""Every error a user can cause: what happened, what came, what was expected, what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

_LONGEST_RECEIVED = 300
"""Characters of a received value that a message shows."""


class LitebertError(Exception):
    """Tell a user in four lines what is wrong and which command comes next.

    `code` is stable (`LB-…`, listed in docs/errors.md); `exit_code` is what the shell sees: 1 user
    error, 3 damaged data, 4 out of memory or disk, 5 non-finite training (subclasses below).

    >>> print(LitebertError("LB-000", "no such size", received="-1", expected="1 or more",
    ...                     next="litebert sizes"))
    LB-000: no such size
      received: -1
      expected: 1 or more
      next:     litebert sizes
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self, code: str, what: str, *, received: object = None, expected: str | None = None, next: str
    ) -> None:
        super().__init__(code, what)
        self.code, self.what = code, what
        self.received = None if received is None else _shortened(str(received))
        self.expected, self.next = expected, next

    def __reduce__(self) -> tuple[object, ...]:
        """Let an error travel from a worker process to the command line."""
        return _rebuilt, (type(self), self.code, self.what, self.received, self.expected, self.next)

    def __str__(self) -> str:
        lines = [f"{self.code}: {_on_one_line(self.what)}"]
        for name, value in (("received", self.received), ("expected", self.expected), ("next", self.next)):
            if value is not None:
                lines.append(f"  {name + ':':<9} {_on_one_line(value)}")
        return "\n".join(lines)


class RequestError(LitebertError):
    """Report a mistake in the request, not in the data."""


class MissingFileError(LitebertError):
    """Report that a folder lacks a file of a named task."""


class NoVocabularyError(LitebertError):
    """Report a folder without a vocabulary, or with none that litebert can use."""


class DamagedError(LitebertError):
    """Report a file, corpus or checkpoint whose bytes are not what was written."""

    exit_code = 3


class ResourceError(LitebertError):
    """Report that memory or disk ran out, or would."""

    exit_code = 4


class NonFiniteError(LitebertError):
    """Report training that produces NaN or infinity."""

    exit_code = 5


def _rebuilt(
    kind: type[LitebertError], code: str, what: str, received: str | None, expected: str | None, next: str
) -> LitebertError:
    return kind(code, what, received=received, expected=expected, next=next)


def no_such_name(code: str, what: str, name: str, known: Iterable[str], *, next: str) -> LitebertError:
    """Return the error for an unknown name; it suggests the nearest known one."""
    return LitebertError(code, what, received=name, expected=did_you_mean(name, known), next=next)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest known name, or the list of all where none is near.

    >>> did_you_mean("bsae-v2", ["base-v2", "large-v2"])
    'did you mean base-v2?'
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"


def _on_one_line(text: str) -> str:
    """Show line breaks and control characters, which the names of files may have, as in Python's strings."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shortened(text: str) -> str:
    """Keep a message one line long, however long the value."""
    line = text if text.isprintable() else text.encode("unicode_escape").decode()
    if len(line) <= _LONGEST_RECEIVED:
        return line
    return f"{line[:_LONGEST_RECEIVED]}… ({len(text):,} characters)"


def missing_package(package: str, *, extra: str, needed_for: str) -> LitebertError:
    """Return the error that names the pip extra to install.

    >>> print(missing_package("ray", extra="cluster", needed_for="--cluster").next)
    pip install 'litebert[cluster]'
    """
    return LitebertError(
        "LB-305",
        f"{needed_for} needs the package {package}",
        received="not installed",
        expected=f"{package}, which comes with the extra [{extra}]",
        next=f"pip install 'litebert[{extra}]'",
    )
