"""Look up inputs before any work is done: texts, tables, and the files of a data folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from shlex import quote

from litebert.errors import LitebertError, MissingFileError, RequestError, did_you_mean
from litebert.reading.source import COMPRESSIONS, Source, stored_size
from litebert.reading.storage import is_url

TEXTS = (".txt", ".jsonl", ".ndjson", ".parquet")
DELIMITED = (".csv", ".tsv")
JSON_LINES = (".jsonl", ".ndjson")
TAGGED = (".conll", ".bio", ".iob")
TABLES = (*DELIMITED, *JSON_LINES, ".json", ".parquet", *TAGGED)

_GLOB_MEANS = str.maketrans({mark: f"[{mark}]" for mark in "*?["})


def find_text(name: str) -> Source:
    """Look up an input with running text.

    Raises:
        LitebertError: LB-303, it is missing or unreadable; LB-304, its kind is unknown; LB-310, it
            is empty.
    """
    kind, compression = _kind(name)
    if not _is_known(kind, compression, TEXTS):
        received = f"{kind}{compression}" or "no extension"
        advice = f"rename or convert it ({did_you_mean(kind, TEXTS)})"
        if Path(name).is_dir():
            received, advice = "a folder", f"name the files in it: {quote(name)}/*.txt"
        raise LitebertError(
            "LB-304",
            f"{name} is of an unknown kind",
            received=received,
            expected=f"{', '.join(TEXTS)}, all but .parquet also with {' or '.join(COMPRESSIONS)}",
            next=advice,
        )
    size = stored_size(name)
    if size == 0:
        raise LitebertError("LB-310", f"{name} is empty", received="0 bytes", expected="text", next="omit this file")
    location = name if is_url(name) else str(Path(name).absolute())
    return Source(name, location, kind, compression, size)


def find_texts(names: Iterable[str | Path]) -> tuple[Source, ...]:
    """Look up all inputs.

    Raises:
        LitebertError: LB-316, there are none; what `find_text` raises.
    """
    sources = tuple(find_text(str(name)) for name in names)
    if not sources:
        raise LitebertError(
            "LB-316",
            "there is no input",
            received="nothing",
            expected="one or more files or URLs",
            next="litebert corpus build data/*.txt --output corpus",
        )
    return sources


def find_table(path: Path) -> Source:
    """Look up a file of rows.

    Raises:
        LitebertError: LB-303, it is missing or unreadable; LB-840, its kind is unknown; LB-853, it
            is empty.
    """
    kind, compression = _kind(path.name)
    size = stored_size(str(path))
    if not _is_known(kind, compression, TABLES):
        near = did_you_mean(kind, TABLES) if kind else "add the extension that it should have"
        raise RequestError(
            "LB-840",
            f"{path} is of a kind that cannot be read",
            received=f"{kind}{compression}" or "no extension",
            expected=f"{', '.join(TABLES)}; all but .parquet also with {' or '.join(COMPRESSIONS)}",
            next=f"rename or convert it ({near})",
        )
    if size == 0:
        raise no_rows(str(path), size)
    return Source(str(path), str(path.absolute()), kind, compression, size)


def find_files(folder: Path, patterns: Sequence[str]) -> list[Source]:
    """Return the files that match the first pattern with a match, sorted by name.

    Each pattern is tried as it is, then with .gz and .zst.

    Raises:
        MissingFileError: LB-820, there are none.
    """
    for pattern in patterns:
        for compression in ("", *COMPRESSIONS):
            found = sorted(path for path in folder.glob(pattern + compression) if path.is_file())
            if found:
                return [_stored(path) for path in found]
    raise MissingFileError(
        "LB-820",
        f"the data is not in {folder}",
        received=_listing(folder),
        expected=f"one of {', '.join(patterns)} (also {' or '.join(COMPRESSIONS)})",
        next=f"ls {folder}",
    )


def find_file(path: Path) -> Source:
    """Return the named file, or its compressed form.

    Raises:
        MissingFileError: LB-820, there is neither.
    """
    return find_files(path.parent, [path.name.translate(_GLOB_MEANS)])[0]


def no_rows(name: str, size: int) -> LitebertError:
    """Return the error for a file without rows."""
    return LitebertError(
        "LB-853",
        f"{name} has no rows",
        received=f"{size:,} bytes",
        expected="rows",
        next="omit this file, or write it again",
    )


def _kind(name: str) -> tuple[str, str]:
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    return suffixes[-1] if suffixes else "", compression


def _is_known(kind: str, compression: str, kinds: Sequence[str]) -> bool:
    return kind in kinds and not (kind == ".parquet" and compression)


def _stored(path: Path) -> Source:
    kind, compression = _kind(path.name)
    return Source(str(path), str(path.absolute()), kind, compression, path.stat().st_size)


def _listing(folder: Path) -> str:
    if not folder.is_dir():
        return "a file, not a folder" if folder.exists() else "no such folder"
    names = sorted(path.name for path in folder.iterdir())
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more or "an empty folder"
