"""An open corpus: its shards, memory-mapped and checked for damage, its tokenizer and
its held-out part.

Files that were verified are listed in the user's cache folder, so that opening a corpus
again need not read them. A file counts as verified while its size, times and inode are
those it had when it was hashed.
"""

import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Self

from litebert import files
from litebert.corpus import shards as disk
from litebert.cpu import find_processors
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json
from litebert.privacy import cache_folder
from litebert.system import allow_open_files
from litebert.tokenizer import Tokenizer

# a file changed this recently is not listed as verified: another change might not
# change its time
RECENT_SECONDS = 2.0
SPARE_FILES = 1_024  # that may be open in addition to those of corpora
# the class of combining characters in tokenizer.json, from U+0300 on: it differs with
# the Unicode version of Python
MARKS = re.compile(rb'(?<="\[)\\\\x\{300\}-[\\x{}A-F0-9-]+(?=\]\+")')


@dataclass(frozen=True)
class Corpus:
    """A finished corpus; see `Shard` for its arrays."""

    path: Path
    shards: tuple[disk.Shard, ...]
    manifest: disk.Manifest

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Self:
        """Map a corpus folder; every file is verified by its hash.

        Files that were verified before and have not changed since are not read again,
        unless `verify` is set.
        """
        folder = Path(path)
        manifest = disk.read_manifest(folder)
        # three mapped files of each shard stay open
        allow_open_files(3 * len(manifest.shards) + SPARE_FILES)
        plan = manifest.plan
        shards = [disk.open_shard(folder, record, plan) for record in manifest.shards]
        _verify_files(folder, shards, again=verify)
        return cls(folder, tuple(shards), manifest)

    def held_out(self, *, verify: bool = False) -> Self | None:
        """Open the held-out part; None if the corpus was built without one."""
        if self.manifest.part == disk.HELD_OUT or not self.manifest.plan.held_out:
            return None
        return self.open(self.path / disk.HELD_OUT, verify=verify)

    def verify_records(self) -> Iterator[Path]:
        """Compare the files other than arrays, the tokenizer's and each shard's record,
        with freshly written ones.
        """
        with tempfile.TemporaryDirectory() as scratch:
            self.tokenizer().save(Path(scratch, disk.TOKENIZER))
            for record in self.manifest.shards:
                disk.write_record(Path(scratch, record.name, disk.SHARD), record)
            written = [path for path in Path(scratch).rglob("*") if path.is_file()]
            for expected in sorted(written):
                path = self.path / expected.relative_to(scratch)
                if not path.is_file() or not _has_same_bytes(path, expected):
                    raise disk.damaged(
                        path,
                        received="another file, or none",
                        next=disk.build_again(self.path),
                    )
                yield path

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer that made the ids; LB-341 if the copy in the corpus is
        another one, or is missing.
        """
        path = self.path / disk.TOKENIZER
        expected = self.manifest.plan.tokenizer_hash
        try:
            tokenizer = Tokenizer.load(path)
        except LitebertError as error:
            received = f"{error.what}: {error.received}"
        else:
            if tokenizer.hash == expected:
                return tokenizer
            received = f"hash {tokenizer.hash[:16]}…"
        raise DamagedError(
            "LB-341",
            f"{path} is not the tokenizer that made this corpus",
            received=received,
            expected=f"hash {expected[:16]}…",
            next=f"restore the previous tokenizer, or {disk.build_again(self.path)}",
        )


def _has_same_bytes(path: Path, other: Path) -> bool:
    return MARKS.sub(b"", path.read_bytes()) == MARKS.sub(b"", other.read_bytes())


def _verify_files(folder: Path, shards: Sequence[disk.Shard], *, again: bool) -> None:
    """Hash the files of shards that are not listed as verified, or all of them."""
    # One list for each folder, named by its path.
    name = blake2b(os.fsencode(folder.absolute()), digest_size=16).hexdigest()
    listing = cache_folder() / "verified" / f"{name}.json"
    listed: dict[str, Json] = {}
    # none yet, or unusable: then nothing counts as verified
    with suppress(LitebertError):
        listed = files.read_json(listing, command=f"rm {listing}")
    unverified = dict[str, disk.StampedFile]()
    for shard in shards:
        for file in shard.files:
            path = str(file.path.absolute())
            if again or listed.get(path) != file.entry:
                unverified[path] = file
    # hashing releases the GIL
    with ThreadPoolExecutor(find_processors().usable) as threads:
        list(threads.map(disk.StampedFile.verify, unverified.values()))
    limit = time.time_ns() - int(RECENT_SECONDS * 1e9)
    entries = dict[str, Json]()
    for path, file in unverified.items():
        if file.stamp.changed_before(limit):
            entries[path] = file.entry
    if entries:
        # no writable cache folder: the next opening hashes again
        with suppress(LitebertError):
            files.write_json(listing, listed | entries)
