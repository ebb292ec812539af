"""A corpus on object storage: upload it, and read it through a cache on this machine's disk.

A corpus of several windows is streamed: its shards are fetched when they are read, and the least recently read ones are
removed to make room. Processes of one machine share the cache: each waits while another fetches the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import TypeVar

from litebert.corpus.shards import HELD_OUT, MANIFEST, Manifest, ShardRecord, damaged, read_record
from litebert.errors import LitebertError, ResourceError, free_bytes
from litebert.files import hash_file, locked, readable_bytes, remove_folder, write_bytes, write_stream
from litebert.reading.source import is_url, read_object, write_object

Item = TypeVar("Item")

CACHE_GIGABYTES = 200.0  # the largest cache of corpora, unless LITEBERT_CORPUS_CACHE_GB says otherwise
LISTING = "files.txt"
ORIGIN = "origin.txt"  # the file with the URL of a streamed corpus, of which only some shards are here
WINDOWS_HELD = 3  # windows that the cache must hold: the current one, the next, and one of a slower process
AT_ONCE = 8
HASH_ATTEMPTS = 3


def cache_folder() -> Path:
    """Return litebert's folder in the user's cache, which XDG_CACHE_HOME may move."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "litebert"


def push_corpus(folder: Path, url: str) -> int:
    """Upload a finished corpus to object storage, its manifest last; return the bytes."""
    read_record(folder / MANIFEST, Manifest, command="litebert corpus build")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    names = sorted(str(path.relative_to(folder)) for path in files)
    last = [name for name in (f"{HELD_OUT}/{MANIFEST}", MANIFEST) if (folder / name).is_file()]
    write_bytes(folder / LISTING, "\n".join([*names, *last]).encode())
    _at_once(lambda name: write_object(f"{url}/{name}", folder / name), names)
    for name in (LISTING, *last):
        write_object(f"{url}/{name}", folder / name)
    (folder / LISTING).unlink()
    return sum((folder / name).stat().st_size for name in (*names, *last))


def local_corpus(corpus: str | Path, *, window: int | None = None) -> Path:
    """Return the folder of a corpus, or of a verified copy if it is on object storage.

    If the corpus has more pieces than `window`, its training shards are fetched later, by `fetch_shards`. The cache
    removes the least recently used corpora to keep within its limit.
    """
    if not is_url(str(corpus)):
        return Path(corpus)
    url = str(corpus).rstrip("/")
    folder = cache_folder() / "corpora" / blake2b(url.encode(), digest_size=12).hexdigest()
    with locked(folder):
        is_here = (folder / MANIFEST).is_file()
        if is_here and (folder / ORIGIN).is_file():  # streamed so far: does it fit a window now?
            manifest = read_record(folder / MANIFEST, Manifest, command=f"rm -r {quote(str(folder))}")
            is_here = window is not None and manifest.counts.tokens > window
        if not is_here:
            _fetch(url, folder, window)
        os.utime(folder)
    return folder


def fetch_shards(folder: Path, records: Sequence[ShardRecord]) -> None:
    """Fetch and verify those shards of a streamed corpus that are not here; else do nothing."""
    if not (folder / ORIGIN).is_file():
        return
    url = (folder / ORIGIN).read_text()

    # Remove the least recently read shards until the wanted ones fit.
    wanted = {record.name for record in records}
    others = [path for path in folder.glob("shard-*") if not path.suffix and path.name not in wanted]
    missing = sum(map(_stored_bytes, records)) - sum(_size(folder / name) for name in wanted)
    excess = _size(cache_folder() / "corpora") + missing - _limit()
    for path in sorted(others, key=_last_used):
        if excess > 0:
            excess -= _size(path)
            with suppress(FileNotFoundError):  # another process of this machine removed it
                remove_folder(path)

    def fetch(record: ShardRecord) -> None:
        with locked(folder / record.name):
            for file, stored in record.files.items():
                _get(url, folder, f"{record.name}/{file}", stored.blake2b)
            os.utime(folder / record.name)

    _at_once(fetch, records)


def _fetch(url: str, folder: Path, window: int | None) -> None:
    """Fetch a corpus; of one that has more pieces than `window`, all but the training shards."""
    command = f"litebert corpus push FOLDER {url}"
    try:
        names = b"".join(read_object(f"{url}/{LISTING}")).decode().splitlines()
    except FileNotFoundError as error:
        raise LitebertError("LB-273", f"{url} is not a corpus", received=f"no {LISTING}", next=command) from error
    manifests = [name for name in names if name.rpartition("/")[2] == MANIFEST]
    hashes: dict[str, str] = {}
    later: set[str] = set()
    size = 0
    for name in manifests:
        held = folder / f"fetched-{name.replace('/', '-')}"
        write_stream(held, read_object(f"{url}/{name}"))
        manifest = read_record(held, Manifest, command=command)
        prefix, stored_bytes = name.removesuffix(MANIFEST), sum(map(_stored_bytes, manifest.shards))
        if not prefix and window is not None and manifest.counts.tokens > window:  # to be streamed
            later = {shard.name for shard in manifest.shards}
            largest = max(window, *(shard.counts.tokens for shard in manifest.shards))
            size += int(WINDOWS_HELD * largest / manifest.counts.tokens * stored_bytes)
            continue
        size += stored_bytes
        for shard in manifest.shards:
            hashes |= {f"{prefix}{shard.name}/{file}": stored.blake2b for file, stored in shard.files.items()}

    # Remove the least recently used corpora until this one fits.
    limit = _limit()
    others = [path for path in folder.parent.iterdir() if path != folder and (path / MANIFEST).is_file()]
    others.sort(key=_last_used)
    while others and sum(map(_size, others)) + size > limit:
        remove_folder(others.pop(0))
    room = min(limit, free_bytes(folder) + _size(folder))
    if size > room:
        raise ResourceError(
            "LB-271",
            f"the cache has no room for {url}",
            received=readable_bytes(size),
            expected=f"at most {readable_bytes(room)}",
            next="set data.window to fewer pieces (three windows must fit), or set "
            "LITEBERT_CORPUS_CACHE_GB or XDG_CACHE_HOME",
        )

    now = [name for name in names if name not in manifests and name.split("/")[0] not in later]
    _at_once(lambda name: _get(url, folder, name, hashes.get(name)), now)
    if later:
        write_bytes(folder / ORIGIN, url.encode())
    else:
        (folder / ORIGIN).unlink(missing_ok=True)
    for name in sorted(manifests, key=len, reverse=True):  # that of the corpus itself comes last
        (folder / f"fetched-{name.replace('/', '-')}").rename(folder / name)


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
    raise damaged(f"{url}/{name}", received=received, expected=f"blake2b {expected:.16}…", command=command)


def _at_once(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(work, items))


def _limit() -> int:
    """Return the most bytes of the cache."""
    given = os.environ.get("LITEBERT_CORPUS_CACHE_GB", str(CACHE_GIGABYTES))
    try:
        return int(float(given) * 1e9)
    except (ValueError, OverflowError) as error:  # nan, inf
        advice = f"unset it for {CACHE_GIGABYTES:g}, or set it to a number of gigabytes"
        what = "LITEBERT_CORPUS_CACHE_GB is not a size"
        raise LitebertError("LB-283", what, received=given, next=advice) from error


def _stored_bytes(record: ShardRecord) -> int:
    return sum(stored.size for stored in record.files.values())


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
