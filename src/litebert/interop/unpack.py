"""Unpack an untrusted tar: plain files only, inside one folder, within limits of size."""

from __future__ import annotations

import gzip
import re
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from litebert.errors import DamagedError, LitebertError
from litebert.files import write_stream

MAX_BYTES = 10 << 30
MAX_ENTRIES = 1_000
"""The released models have at most nine files."""
MAX_RATIO = 100
"""Most unpacked bytes per byte of the archive, beyond the first MiB."""

_BLOCK = 512
_CHUNK = 1 << 20
_NOTE_LIMIT = 64 << 10
"""Longest note about the next member (a long name, an extended header)."""
_NAME_LIMIT, _DEPTH_LIMIT = 200, 16
_GZIP = b"\x1f\x8b"


def is_archive(path: Path) -> bool:
    """Tell by the first bytes whether a file is a tar, plain or gzipped."""
    with path.open("rb") as file:
        start = file.read(_BLOCK)
    return start.startswith(_GZIP) or start[257:262] == b"ustar"


def unpack(archive: Path, into: Path) -> None:
    """Write the files of a `.tar` or `.tar.gz` below the folder `into`, and nothing elsewhere.

    Raises:
        LitebertError: LB-700, a member is not a plain file or is outside the folder; LB-701, more
            than `MAX_BYTES`, `MAX_ENTRIES` or `MAX_RATIO`.
        DamagedError: LB-702, the archive is cut off or damaged.
    """
    written: set[Path] = set()
    folders: set[Path] = set()
    try:
        with archive.open("rb") as file:
            for name, chunks in _members(_ArchiveBytes(file, archive)):
                path = into / _inside(name, archive)
                if path in written or path in folders or not written.isdisjoint(path.parents):
                    raise _unsafe(archive, f"{name} twice")
                write_stream(path, chunks, is_temporary=True)
                written.add(path)
                folders.update(path.parents)
    except (tarfile.HeaderError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedError(
            "LB-702",
            f"{archive} is cut off or damaged",
            received=str(error),
            expected="a complete .tar or .tar.gz",
            next=f"fetch {archive.name} again",
        ) from error


class _ArchiveBytes:
    """The unpacked bytes of an archive, counted."""

    def __init__(self, file: BinaryIO, archive: Path) -> None:
        is_gzip = file.read(2) == _GZIP
        file.seek(0)
        self.archive = archive
        self._stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_gzip else file
        self._left = min(MAX_BYTES, MAX_RATIO * archive.stat().st_size + _CHUNK)

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes, which are few."""
        self.require(size)
        data = self._stream.read(size)
        self._left -= len(data)
        if len(data) < size:
            raise EOFError(f"{size - len(data)} bytes are missing at the end")
        return data

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of a member, then skip to the next block."""
        self.require(size)
        for begin in range(0, size, _CHUNK):
            yield self.read(min(_CHUNK, size - begin))
        self.read(-size % _BLOCK)

    def require(self, size: int) -> None:
        """Refuse a member that is larger than an archive of this size may contain."""
        if not 0 <= size <= self._left:
            raise _bomb(self.archive, f"{size:,} bytes more, {self._left:,} allowed")

    def finish(self) -> None:
        """Read to the end, so that gzip verifies its checksum."""
        while data := self._stream.read(_CHUNK):
            self.require(len(data))
            self._left -= len(data)


def _members(source: _ArchiveBytes) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield name and contents of each file; the contents must be read before the next one."""
    long_name = None
    for number in range(MAX_ENTRIES + 1):
        header = source.read(_BLOCK)
        if not any(header):
            source.finish()
            return
        info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        if number == MAX_ENTRIES:
            raise _bomb(source.archive, f"more than {MAX_ENTRIES:,} entries")
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE):
            long_name = _noted_name(info, source) or long_name
            continue
        name, long_name = long_name or info.name, None
        if info.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            yield name, source.chunks(info.size)
        elif not info.isdir() or info.size:
            raise _unsafe(source.archive, f"{name}, {_KINDS.get(info.type, 'of an unknown kind')}")


_KINDS = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
    tarfile.GNUTYPE_LONGLINK: "a link",
    tarfile.DIRTYPE: "a folder with contents of its own",
}


def _noted_name(info: tarfile.TarInfo, source: _ArchiveBytes) -> str | None:
    """Read an extended header that precedes a member; only the member's name is used."""
    if info.size > _NOTE_LIMIT:
        raise _bomb(source.archive, f"a header of {info.size:,} bytes")
    note = b"".join(source.chunks(info.size))
    if info.type == tarfile.GNUTYPE_LONGNAME:
        return note.rstrip(b"\0").decode("utf-8", "surrogateescape")
    records = dict(re.findall(rb"\d+ ([^=\n]+)=([^\n]*)\n", note))
    if b"size" in records or any(key.startswith(b"GNU.sparse") for key in records):
        raise _unsafe(source.archive, "a sparse file, or one of more than 8 GB")
    name = records.get(b"path") if info.type == tarfile.XHDTYPE else None
    return name.decode("utf-8", "surrogateescape") if name else None


def _inside(name: str, archive: Path) -> Path:
    """Return a member's path below the folder; refuse every name that could mean another place."""
    folded = unicodedata.normalize("NFKC", name)
    parts = PurePosixPath(name).parts
    is_elsewhere = (
        folded.startswith("/") or ".." in folded.split("/") or re.search(r"[\0\\]|(^|/)[A-Za-z]:", folded) is not None
    )
    lengths = [len(part.encode("utf-8", "surrogateescape")) for part in parts]
    if is_elsewhere or not parts or max(lengths) > _NAME_LIMIT or len(parts) > _DEPTH_LIMIT:
        raise _unsafe(archive, f"the name {name!r}")
    return Path(*parts)


def _unsafe(archive: Path, received: str) -> LitebertError:
    return LitebertError(
        "LB-700",
        f"{archive} contains what litebert does not unpack",
        received=received,
        expected="plain files with relative names, each once, as in the released models",
        next="check where the archive comes from; unpack it yourself and give the folder instead",
    )


def _bomb(archive: Path, received: str) -> LitebertError:
    return LitebertError(
        "LB-701",
        f"{archive} becomes too large when it is unpacked",
        received=received,
        expected=f"at most {MAX_BYTES >> 30} GiB, {MAX_ENTRIES:,} files and {MAX_RATIO} times the size of the archive",
        next="check where the archive comes from; unpack it yourself and give the folder instead",
    )
