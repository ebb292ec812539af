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
        shards = tuple(
            disk.open_shard(folder, record, manifest.plan) for record in manifest.shards
        )
        _verify_files(folder, shards, again=verify)
        return cls(folder, shards, manifest)

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
    entries = {
        path: file.entry
        for path, file in unverified.items()
        if file.stamp.changed_before(limit)
    }
<<<<<<< HEAD
    if entries:
        # no writable cache folder: the next opening hashes again
        with suppress(LitebertError):
            files.write_json(listing, listed | entries)
=======
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(
            threads.map(
                lambda name: write_object(f"{url.rstrip('/')}/{name}", there[name]),
                there,
            )
        )
    # Readers recognize a corpus by its list of files, so the list comes after
    # everything else.
    write_object(f"{url.rstrip('/')}/{LISTING}", "\n".join(there).encode())
    size = sum(path.stat().st_size for path in there.values())
    return f"{hide_passwords(url)}  {files.format_bytes(size)}"


def local_corpus(corpus: str | Path) -> Path:
    """Return the folder of a corpus; for one on object storage, the cache folder to
    which opened shards are fetched.
    """
    if not is_url(str(corpus)):
        return Path(corpus)
    url = str(corpus).rstrip("/")
    folder = (
        cache_folder() / "corpora" / blake2b(url.encode(), digest_size=12).hexdigest()
    )
    with files.locked(folder):
        if (folder / disk.MANIFEST).is_file():
            return folder
        try:
            names = b"".join(read_object(f"{url}/{LISTING}")).decode().splitlines()
        except FileNotFoundError as error:
            what = f"{url} is not a corpus"
            command = f"litebert corpus push FOLDER {url}"
            raise LitebertError(
                "LB-273", what, received=f"no {LISTING}", next=command
            ) from error
        small = [
            name for name in names if "shard-" not in name and name != disk.MANIFEST
        ]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(lambda name: _get(url, folder, name), small))
        files.write_bytes(folder / ORIGIN, url.encode())
        if (folder / disk.HELD_OUT).is_dir():
            files.write_bytes(
                folder / disk.HELD_OUT / ORIGIN, f"{url}/{disk.HELD_OUT}".encode()
            )
        _get(url, folder, disk.MANIFEST)  # last: it marks everything else as here
    return folder


def _fetch_shards(
    folder: Path, records: Sequence[disk.ShardRecord], windows: int
) -> None:
    url = (folder / ORIGIN).read_text()
    _make_room(url, folder, records, windows)

    def fetch(record: disk.ShardRecord) -> None:
        with files.locked(folder / record.name):
            if not (folder / record.name / disk.SHARD).is_file():  # it is fetched last
                for file, stored in record.files.items():
                    _get(url, folder, f"{record.name}/{file}", stored.blake2b)
                _get(url, folder, f"{record.name}/{disk.SHARD}")
            os.utime(folder / record.name)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(fetch, records))


def _make_room(
    url: str, folder: Path, records: Sequence[disk.ShardRecord], windows: int
) -> None:
    given = os.environ.get("LITEBERT_CORPUS_CACHE_GB", str(CACHE_GIGABYTES))
    try:
        limit = int(float(given) * 1e9)
    except (ValueError, OverflowError) as error:  # nan, inf
        what = "LITEBERT_CORPUS_CACHE_GB is not a size"
        advice = "unset it, or set it to a number of gigabytes"
        raise LitebertError("LB-283", what, received=given, next=advice) from error

    def size_of(path: Path) -> int:
        """Return the bytes of all shards in a folder; its other files are small."""
        size = 0
        for place, _, names in os.walk(path):
            # another process of this machine is removing it
            with suppress(FileNotFoundError):
                size += sum(
                    Path(place, name).stat().st_size
                    for name in names
                    if name.endswith(".npy")
                )
        return size

    cache = cache_folder() / "corpora"
    wanted = {folder / record.name for record in records}
    size = sum(stored.size for record in records for stored in record.files.values())
    excess = size_of(cache) + size - sum(map(size_of, wanted)) - limit
    others = list[tuple[float, Path]]()  # by when they were last opened
    for path in cache.glob("*/shard-*"):
        if not path.suffix and path not in wanted:
            with suppress(FileNotFoundError):
                others.append((path.stat().st_mtime, path))
    for _, path in sorted(others):
        if excess > 0:
            excess -= size_of(path)
            with suppress(FileNotFoundError):
                files.remove_folder(path)
    room = min(limit, free_bytes(folder) + size_of(folder))
    if excess > 0 or windows * size > room:
        received = files.format_bytes(windows * size)
        expected = f"at most {files.format_bytes(room)}"
        advice = (
            "set a smaller data.window (three must fit), or LITEBERT_CORPUS_CACHE_GB,"
            " or XDG_CACHE_HOME"
        )
        what = f"the cache has no room for {url}"
        raise ResourceError(
            "LB-271", what, received=received, expected=expected, next=advice
        )


def _get(url: str, folder: Path, name: str, expected: str | None = None) -> None:
    path = folder / name
    if ".." in Path(name).parts or Path(name).is_absolute():
        advice = "check where this corpus comes from"
        raise LitebertError(
            "LB-274",
            f"{url} names a file outside the corpus",
            received=name,
            next=advice,
        )
    for attempt in range(HASH_ATTEMPTS + 1):  # an existing copy may be damaged, too
        if path.is_file() and (expected is None or files.hash_file(path) == expected):
            return
        if attempt < HASH_ATTEMPTS:
            files.write_stream(path, read_object(f"{url}/{name}"))
    path.unlink()
    received = "a different hash each time it was fetched"
    command = f"litebert corpus push FOLDER {url}"
    raise disk.damaged(
        f"{url}/{name}",
        received=received,
        expected=f"blake2b {expected:.16}…",
        next=command,
    )
>>>>>>> ecd2706a (American spelling in pages, messages and comments)
