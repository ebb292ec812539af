"""Lines and a progress bar in a terminal.

Control characters of a text never reach a terminal, nor do passwords in URLs.
"""

import json
import os
import re
import sys
import unicodedata
from contextlib import suppress

_CLEAR = "\r\x1b[K"
_BAR = 30  # characters

# user:password@ in a URL; a password may have a slash or an @ in it
_PASSWORD = re.compile(r"(://[^\s:/@]*:)\S+(?=@)")
# in the query of a URL, as of one that is signed
_SECRET = re.compile(
    r"((?:[?&]|%3F|%26)[\w.%-]*(?:sig|token|key|secret|password|credential)[\w.%-]*=)[^\s&#'\"]+",
    re.IGNORECASE,
)


# ---- texts ---------------------------------------------------------------------------


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


def escape_breaks(text: str) -> str:
    """Escape line breaks and control characters, which file names may contain, as
    Python's strings do.
    """
    return escape_control(text).replace("\n", "\\n").replace("\t", "\\t")


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


# ---- stderr --------------------------------------------------------------------------


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
