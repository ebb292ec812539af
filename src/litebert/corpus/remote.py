"""A corpus on object storage: put there whole, and read through a cache on this machine's disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

from litebert.corpus.manifest import HELD_OUT, MANIFEST, Manifest, read_record
from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.files import (
    free_bytes,
    hash_file,
    locked,
    readable_bytes,
    remove_folder,
    write_bytes,
    write_stream,
)
from litebert.reading.storage import is_url, read_object, write_object

CACHE_GIGABYTES = 200.0
"""The largest cache of corpora, unless LITEBERT_CORPUS_CACHE_GB says otherwise."""
LISTING = "files.txt"
_AT_ONCE = 8
_HASH_ATTEMPTS = 3
_WAIT_SECONDS = 0.5


def push_corpus(folder: Path, url: str) -> int:
    """Put a finished corpus on object storage, its manifest last; return the bytes.

    Raises: LitebertError where there is no corpus, or where the storage fails.
    """
    read_record(folder / MANIFEST, Manifest, command="litebert corpus build")
    names = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    )
    last = [name for name in (f"{HELD_OUT}/{MANIFEST}", MANIFEST) if (folder / name).is_file()]
    write_bytes(folder / LISTING, "\n".join([*names, *last]).encode())
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(lambda name: write_object(f"{url}/{name}", folder / name), names):
            pass
    for name in (LISTING, *last):
        write_object(f"{url}/{name}", folder / name)
    (folder / LISTING).unlink()
    return sum((folder / name).stat().st_size for name in (*names, *last))


def local_corpus(corpus: str | Path) -> Path:
    """Return a folder with a corpus: its own, or a verified copy of one on object storage.

    The cache keeps within its bound by removing the corpora that were used longest ago.

    Raises: ResourceError LB-271 where the corpus alone is larger, LB-270 where the storage fails;
    DamagedError LB-272 where the bytes are not those that were written.
    """
    if not is_url(str(corpus)):
        return Path(corpus)
    url = str(corpus).rstrip("/")
    folder = _cache() / blake2b(url.encode(), digest_size=12).hexdigest()
    while True:
        try:
            with locked(folder, _busy):
                if not (folder / MANIFEST).is_file():
                    _fetch(url, folder)
                os.utime(folder)
                return folder
        except _BusyError:  # another process of this machine fetches it
            time.sleep(_WAIT_SECONDS)


class _BusyError(LitebertError):
    """Another process holds the folder."""


def _busy() -> _BusyError:
    return _BusyError(
        "LB-281",
        "another process fetches this corpus",
        received="a locked folder of the cache",
        expected="one process of this machine that fetches",
        next="wait for it",
    )


def _fetch(url: str, folder: Path) -> None:
    try:
        names = b"".join(read_object(f"{url}/{LISTING}")).decode().splitlines()
    except FileNotFoundError as error:
        raise LitebertError(
            "LB-273",
            f"{url} is not a corpus",
            received=f"no {LISTING}",
            expected="what litebert corpus push has written",
            next=f"litebert corpus push FOLDER {url}",
        ) from error
    manifests = [name for name in names if name.rpartition("/")[2] == MANIFEST]
    hashes: dict[str, str] = {}
    size = 0
    for name in manifests:
        held = folder / f"fetched-{name.replace('/', '-')}"
        write_stream(held, read_object(f"{url}/{name}"))
        manifest = read_record(held, Manifest, command=f"litebert corpus push FOLDER {url}")
        prefix = name.removesuffix(MANIFEST)
        for shard in manifest.shards:
            for file, stored in shard.files.items():
                hashes[f"{prefix}{shard.name}/{file}"] = stored.blake2b
                size += stored.size
    _make_room(folder, url, size)
    others = [name for name in names if name not in manifests]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(lambda name: _get(url, folder, name, hashes.get(name)), others):
            pass
    for name in sorted(manifests, key=len, reverse=True):  # that of the corpus itself comes last
        (folder / f"fetched-{name.replace('/', '-')}").rename(folder / name)


def _get(url: str, folder: Path, name: str, expected: str | None) -> None:
    """Fetch one file, unless it is there; compare its hash, and fetch it again where it differs."""
    path = folder / name
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise LitebertError(
            "LB-274",
            f"{url} names a file outside of it",
            received=name,
            expected="files of a corpus",
            next="check where this corpus comes from",
        )
    for _ in range(_HASH_ATTEMPTS):
        if path.is_file() and (expected is None or hash_file(path) == expected):
            return
        write_stream(path, read_object(f"{url}/{name}"))
    if expected is None or hash_file(path) == expected:
        return
    path.unlink()
    raise DamagedError(
        "LB-272",
        f"{url}/{name} is not what was written",
        received="another hash, each time it was fetched",
        expected=f"blake2b {expected[:16]}…",
        next=f"litebert corpus push FOLDER {url}",
    )


def _make_room(folder: Path, url: str, size: int) -> None:
    """Remove corpora that were used longest ago until this one fits."""
    limit = int(float(os.environ.get("LITEBERT_CORPUS_CACHE_GB", CACHE_GIGABYTES)) * 1e9)
    others = sorted(_others(folder), key=lambda path: path.stat().st_mtime)
    sizes = {path: _size(path) for path in others}
    while others and sum(sizes[path] for path in others) + size > limit:
        remove_folder(others.pop(0))
    room = min(limit, free_bytes(folder) + _size(folder))
    if size > room:
        raise ResourceError(
            "LB-271",
            f"the cache has no room for {url}",
            received=f"a corpus of {readable_bytes(size)}",
            expected=f"at most {readable_bytes(room)}",
            next="set LITEBERT_CORPUS_CACHE_GB or XDG_CACHE_HOME, or train on a part: data.mix "
            "takes several corpora",
        )


def _others(folder: Path) -> Iterator[Path]:
    for path in folder.parent.iterdir():
        if path.is_dir() and path != folder and (path / MANIFEST).is_file():
            yield path


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    root = Path(named) if named else Path.home() / ".cache"
    return root / "litebert" / "corpora"
