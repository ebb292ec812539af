"""A corpus on object storage: upload it, and read it through a cache on this machine's disk.

The cache has all of a corpus but its training shards, which are fetched when they are opened: all at once, or one
window after another. The least recently opened ones are removed to make room. Processes of one machine share the cache:
each waits while another fetches the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from litebert.corpus.shards import HELD_OUT, MANIFEST, SHARD, Manifest, ShardRecord, damaged, read_record
from litebert.errors import LitebertError, ResourceError, free_bytes
from litebert.files import hash_file, locked, readable_bytes, remove_folder, write_bytes, write_stream
from litebert.reading.source import is_url, read_object, write_object

Item = TypeVar("Item")

CACHE_GIGABYTES = 200.0  # the largest cache of corpora, unless LITEBERT_CORPUS_CACHE_GB says otherwise
LISTING = "files.txt"
ORIGIN = "origin.txt"  # in a folder of the cache: the URL that it comes from
WINDOWS_HELD = 3  # windows that the cache must hold: the current one, the next, and one of a slower process
AT_ONCE = 8
HASH_ATTEMPTS = 3


def cache_folder() -> Path:
    """Return litebert's folder in the user's cache, which XDG_CACHE_HOME may move."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "litebert"


def push_corpus(folder: Path, url: str) -> int:
    """Upload a finished corpus to object storage, its manifest last; return the bytes."""
    read_record(folder / MANIFEST, Manifest)
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    names = sorted(str(path.relative_to(folder)) for path in files)
    last = [name for name in (f"{HELD_OUT}/{MANIFEST}", MANIFEST) if (folder / name).is_file()]
    write_bytes(folder / LISTING, "\n".join([*names, *last]).encode())
    _at_once(lambda name: write_object(f"{url}/{name}", folder / name), names)
    for name in (LISTING, *last):
        write_object(f"{url}/{name}", folder / name)
    (folder / LISTING).unlink()
    return sum((folder / name).stat().st_size for name in (*names, *last))


def local_corpus(corpus: str | Path) -> Path:
    """Return the folder of a corpus, in the cache if it is on object storage: then without its training shards."""
    if not is_url(str(corpus)):
        return Path(corpus)
    url = str(corpus).rstrip("/")
    folder = cache_folder() / "corpora" / blake2b(url.encode(), digest_size=12).hexdigest()
    with locked(folder):
        if (folder / MANIFEST).is_file():
            return folder
        try:
            names = b"".join(read_object(f"{url}/{LISTING}")).decode().splitlines()
        except FileNotFoundError as error:
            what, command = f"{url} is not a corpus", f"litebert corpus push FOLDER {url}"
            raise LitebertError("LB-273", what, received=f"no {LISTING}", next=command) from error
        write_bytes(folder / ORIGIN, url.encode())
        small = [name for name in names if not name.startswith("shard-") and name != MANIFEST]
        hashes: dict[str, str] = {}
        if f"{HELD_OUT}/{MANIFEST}" in small:
            _get(url, folder, f"{HELD_OUT}/{MANIFEST}", None)
            held_out = read_record(folder / HELD_OUT / MANIFEST, Manifest)
            _make_room(url, folder, held_out.shards, 1)
            for shard in held_out.shards:
                hashes |= {f"{HELD_OUT}/{shard.name}/{file}": each.blake2b for file, each in shard.files.items()}
        _at_once(lambda name: _get(url, folder, name, hashes.get(name)), small)
        _get(url, folder, MANIFEST, None)
    return folder


def fetch_shards(folder: Path, records: Sequence[ShardRecord], *, windows: int = 1) -> None:
    """Fetch the training shards of a corpus in the cache that are not here; there must be room for `windows` as large.

    Do nothing for other folders.
    """
    if not (folder / ORIGIN).is_file():
        return
    url = (folder / ORIGIN).read_text()
    _make_room(url, folder, records, windows)

    def fetch(record: ShardRecord) -> None:
        with locked(folder / record.name):
            if not (folder / record.name / SHARD).is_file():  # it comes last
                for file, stored in record.files.items():
                    _get(url, folder, f"{record.name}/{file}", stored.blake2b)
                _get(url, folder, f"{record.name}/{SHARD}", None)
            os.utime(folder / record.name)

    _at_once(fetch, records)


def _make_room(url: str, folder: Path, records: Sequence[ShardRecord], windows: int) -> None:
    """Remove the least recently opened training shards of any corpus until those that are wanted fit."""
    cache, wanted = cache_folder() / "corpora", {folder / record.name for record in records}
    size = sum(stored.size for record in records for stored in record.files.values())
    missing = size - sum(map(_size, wanted))
    given = os.environ.get("LITEBERT_CORPUS_CACHE_GB", str(CACHE_GIGABYTES))
    try:
        limit = int(float(given) * 1e9)
    except (ValueError, OverflowError) as error:  # nan, inf
        advice = f"unset it for {CACHE_GIGABYTES:g}, or set it to a number of gigabytes"
        what = "LITEBERT_CORPUS_CACHE_GB is not a size"
        raise LitebertError("LB-283", what, received=given, next=advice) from error
    others = [path for path in cache.glob("*/shard-*") if not path.suffix and path not in wanted]
    excess = _size(cache) + missing - limit
    for path in sorted(others, key=_last_used):
        if excess > 0:
            excess -= _size(path)
            with suppress(FileNotFoundError):  # another process of this machine removed it
                remove_folder(path)
    room = min(limit, free_bytes(folder) + _size(folder))
    if excess > 0 or windows * size > room:
        raise ResourceError(
            "LB-271",
            f"the cache has no room for {url}",
            received=readable_bytes(windows * size),
            expected=f"at most {readable_bytes(room)}",
            next="set data.window to fewer pieces (three windows must fit), or set "
            "LITEBERT_CORPUS_CACHE_GB or XDG_CACHE_HOME",
        )


def _get(url: str, folder: Path, name: str, expected: str | None) -> None:
    """Fetch a file unless it is here; compare its hash, and fetch it again if that differs."""
    path = folder / name
    if ".." in Path(name).parts or Path(name).is_absolute():
        advice = "check where this corpus comes from"
        raise LitebertError("LB-274", f"{url} names a file outside the corpus", received=name, next=advice)
    for attempt in range(HASH_ATTEMPTS + 1):
        if path.is_file() and (expected is None or hash_file(path) == expected):
            return
        if attempt < HASH_ATTEMPTS:
            write_stream(path, read_object(f"{url}/{name}"))
    path.unlink()
    received, command = "another hash, each time it was fetched", f"litebert corpus push FOLDER {url}"
    raise damaged(f"{url}/{name}", received=received, expected=f"blake2b {expected:.16}…", next=command)


def _at_once(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(work, items))


def _last_used(folder: Path) -> float:
    with suppress(FileNotFoundError):  # another process of this machine removed it
        return folder.stat().st_mtime
    return 0.0


def _size(folder: Path) -> int:
    """Return the bytes of all shards in a folder; its other files are small."""
    size = 0
    for place, _, names in os.walk(folder):  # skips folders that are removed meanwhile
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(place, name).stat().st_size if name.endswith(".npy") else 0
    return size
