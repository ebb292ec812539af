"""A list of verified files, so that opening a corpus again need not read them.

A file counts as verified while its size, times and inode are those that it had when it was hashed.
The list is in the user's cache folder; if that cannot be written, each opening hashes again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from litebert.corpus.manifest import StoredFile
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, hash_file, read_json, write_json

RECENT_SECONDS = 2.0
"""A file changed this recently is not listed: another change might not change its time."""


class Stamp(NamedTuple):
    """Size, times and inode of a file: one of them changes whenever the file does."""

    size: int
    modified: int
    changed: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Read the stamp of a file."""
        found = path.stat()
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class StampedFile:
    """A mapped file, which must not be read after it has changed.

    Reading beyond the end of a truncated file would kill the process (SIGBUS), and training on
    other bytes would go unnoticed.
    """

    def __init__(self, path: Path, stored: StoredFile, stamp: Stamp, *, command: str) -> None:
        self.path, self.stored, self.stamp = path, stored, stamp
        self._command = command

    def require_unchanged(self) -> None:
        """Compare the stamp; if it differs, compare the content.

        Raises:
            DamagedError: LB-340, the file has changed.
        """
        try:
            now = Stamp.of(self.path)
        except FileNotFoundError as error:
            raise self._changed("it was deleted") from error
        if now == self.stamp:
            return
        if now.size != self.stored.size:
            raise self._changed(f"{now.size:,} bytes, {self.stored.size:,} before")
        if hash_file(self.path) != self.stored.blake2b:
            raise self._changed("other bytes")
        self.stamp = now

    def _changed(self, received: str) -> DamagedError:
        return DamagedError(
            "LB-340",
            f"{self.path} changed while it was in use",
            received=received,
            expected="a corpus that stays as it was built",
            next=self._command,
        )


class VerifiedFiles:
    """The list of verified files of one corpus."""

    def __init__(self, corpus: Path) -> None:
        name = blake2b(os.fsencode(corpus.absolute()), digest_size=16).hexdigest()
        self._path = cache_folder() / "verified" / f"{name}.json"
        self._known = self._read()

    def has(self, file: StampedFile) -> bool:
        """Whether a file was verified against this hash and has not changed since."""
        return self._known.get(str(file.path.absolute())) == _entry(file)

    def remember(self, files: Iterable[StampedFile]) -> None:
        """Add verified files and write the list."""
        limit = time.time_ns() - int(RECENT_SECONDS * 1e9)
        added = {
            str(file.path.absolute()): _entry(file)
            for file in files
            if max(file.stamp.modified, file.stamp.changed) < limit
        }
        if added:
            self._known |= added
            try:
                write_json(self._path, self._known)
            except LitebertError:  # no writable cache folder: the next opening hashes again
                return

    def _read(self) -> dict[str, Json]:
        try:
            return read_json(self._path, command=f"rm {self._path}")
        except LitebertError:  # none yet, or unusable: then nothing counts as verified
            return {}


def _entry(file: StampedFile) -> Json:
    return [*file.stamp, file.stored.blake2b]


def cache_folder() -> Path:
    """Return litebert's folder in the user's cache, which XDG_CACHE_HOME may move."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "litebert"
