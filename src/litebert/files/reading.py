"""Read small files with a size limit, JSON without NaN, and the hash of any file."""

import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from shlex import quote
from typing import TypeAlias, Union

from litebert.errors import DamagedError, LitebertError

Json: TypeAlias = Union[bool, int, float, str, list["Json"], dict[str, "Json"], None]  # noqa: UP007


def as_path(path: str | os.PathLike[str], noun: str) -> Path:
    """Return a caller's path as a Path; `noun` says in errors what it is of."""
    if not isinstance(path, str | os.PathLike):
        raise LitebertError(
            "LB-532",
            f"{noun} cannot be of this type",
            received=f"{path!r:.100} ({type(path).__name__})",
            next="give a str or a Path",
        )
    if path == "":
        raise LitebertError(
            "LB-538",
            f"the path of {noun} is empty",
            next="give a folder; . is this folder",
        )
    return Path(path)


def format_bytes(number: int) -> str:
    """Format a size for people.

    >>> format_bytes(812), format_bytes(1 << 20), format_bytes(1 << 30)
    ('812 bytes', '1.0 MiB', '1.00 GiB')
    """
    if number < 1 << 20:
        return f"{number:,} bytes"
    if number < 1 << 30:
        return f"{number / 2**20:.1f} MiB"
    return f"{number / 2**30:.2f} GiB"


def hash_file(path: Path) -> str:
    """Return the blake2b-256 of a file in hex, reading it in pieces."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32))
    return digest.hexdigest()


def read_capped(path: Path, limit: int, *, command: str | None = None) -> bytes:
    """Read a file of at most `limit` bytes.

    Errors name `command` as the next step, by default one that lists the folder.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is a folder, device or pipe")
        if status.st_size > limit:
            raise ValueError(
                f"it has {status.st_size:,} bytes, more than the limit of {limit:,}"
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a null byte in the name raises ValueError
        raise LitebertError(
            "LB-004",
            f"{path} cannot be read",
            received=getattr(error, "strerror", None) or str(error),
            next=command or _listing(path),
        ) from error


def read_json(
    path: Path, *, command: str | None = None, limit: int = 16 << 20
) -> dict[str, Json]:
    """Read a JSON object from a file of at most `limit` bytes; NaN and Infinity count
    as damage.
    """
    data = read_capped(path, limit, command=command)
    try:
        value = parse_json(data.decode("utf-8"))
        if not isinstance(value, dict):
            raise ValueError(f"{type(value).__name__} instead of an object")
    except ValueError as error:
        raise DamagedError(
            "LB-005",
            f"{path} is not valid JSON",
            received=error,
            expected="a JSON object in UTF-8 without NaN or Infinity",
            next=command or _listing(path),
        ) from error
    return value


def _listing(path: Path) -> str:
    return f"ls -l {quote(str(path.parent))}"


def parse_json(text: str, *, distinct_keys: bool = False) -> object:
    """Parse JSON; raise ValueError if it is invalid or has NaN, Infinity or, with
    `distinct_keys`, duplicate keys, and for what Python does not read: very deep nesting
    and very long integers.
    """
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            object_pairs_hook=_distinct if distinct_keys else None,
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:
        # Python's message has advice for programmers
        if "set_int_max_str_digits" in str(error):
            most = sys.get_int_max_str_digits()
            raise ValueError(f"an integer has over {most:,} digits") from error
        raise


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _distinct(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key is given twice")
    return table
