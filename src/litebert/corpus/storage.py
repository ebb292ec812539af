"""Corpora on object storage: pushed whole, and fetched whole into the cache folder.

Processes of one machine share the cache: each waits while another fetches the same
corpus. A fetch that was interrupted goes on where it stopped.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shlex import quote

from litebert import files
from litebert.corpus import shards as disk
from litebert.errors import LitebertError, ResourceError, free_bytes, hide_passwords
from litebert.privacy import cache_folder
from litebert.reading.remote import is_url, read_object, write_object

LISTING = "files.txt"
# the manifest while its corpus is fetched; it gets its name when everything is there
ARRIVING = "arriving.json"
AT_ONCE = 8  # files that are fetched or sent in parallel
HASH_ATTEMPTS = 3  # a transfer may damage a file; a bucket that is damaged stays so


def corpus_push(corpus: Path, url: str) -> str:
    """Upload a corpus to object storage, from which `pretrain --corpus URL` reads it.

    litebert corpus push corpora/wiki s3://bucket/wiki
    litebert corpus push corpora/wiki gs://bucket/wiki
    AWS_ENDPOINT_URL=http://localhost:9000 litebert corpus push corpora/wiki s3://bucket/wiki
    """
    disk.read_manifest(corpus)  # check that it is a finished corpus
    if not is_url(url):
        raise LitebertError(
            "LB-275",
            "a corpus is pushed to object storage, not to a folder",
            received=url,
            expected="a URL such as s3://bucket/wiki",
            next=f"cp -r {quote(str(corpus))} {quote(url)} copies it to a folder",
        )
    address = url.rstrip("/")
    _require_no_other_corpus(corpus, address)
    paths = dict[str, Path]()  # by the name below the corpus
    for path in sorted(corpus.rglob("*")):
        if path.is_file():
            paths[str(path.relative_to(corpus))] = path

    def send(name: str) -> None:
        write_object(f"{address}/{name}", paths[name])

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(send, paths))  # a list, so that an error is raised
    # Readers recognize a corpus by its list of files, so the list comes after
    # everything else.
    write_object(f"{address}/{LISTING}", "\n".join(paths).encode())
    size = sum(path.stat().st_size for path in paths.values())
    return f"{hide_passwords(url)}  {files.format_bytes(size)}"


def _require_no_other_corpus(corpus: Path, url: str) -> None:
    """Raise if another corpus is there: a reader fetches each file only once, and would
    mix the two.
    """
    # nothing is there yet, or what an interrupted push has left
    with suppress(FileNotFoundError):
        _read(f"{url}/{LISTING}")
        present = _read(f"{url}/{disk.MANIFEST}")
        if present != (corpus / disk.MANIFEST).read_bytes():
            raise LitebertError(
                "LB-619",
                f"{url} already holds another corpus",
                next="push it to another URL",
            )


def local_corpus(corpus: str | Path) -> Path:
    """Return the folder of a corpus; one on object storage is fetched into the cache
    folder first.
    """
    if not is_url(str(corpus)):
        return Path(corpus)
    url = str(corpus).rstrip("/")
    # A URL has characters that a file name may not have.
    name = blake2b(url.encode(), digest_size=16).hexdigest()
    folder = cache_folder() / "corpora" / name
    with files.locked(folder):
        if not (folder / disk.MANIFEST).is_file():
            _fetch(url, folder)
    return folder


def _fetch(url: str, folder: Path) -> None:
    """Fetch all files of a corpus: those that the manifests list with their hashes."""
    try:
        names = _read(f"{url}/{LISTING}").decode().splitlines()
    except FileNotFoundError as error:
        raise LitebertError(
            "LB-273",
            f"{url} is not a corpus",
            received=f"no {LISTING}",
            next=f"litebert corpus push FOLDER {url}",
        ) from error
    # The list comes from elsewhere, and its names become paths here.
    for name in names:
        _require_inside(url, name)
    files.write_stream(folder / ARRIVING, read_object(f"{url}/{disk.MANIFEST}"))
    # What the manifests say of the arrays; the other files are small, and the tokenizer
    # has a hash of its own.
    stored = dict(_stored_files(folder / ARRIVING, ""))
    held_out = f"{disk.HELD_OUT}/{disk.MANIFEST}"
    if held_out in names:
        _get(url, folder, held_out)
        stored |= _stored_files(folder / held_out, f"{disk.HELD_OUT}/")
    num_bytes = 0  # of the files that are still missing
    for name, file in stored.items():
        if not (folder / name).is_file():
            num_bytes += file.size
    _require_room(url, folder, num_bytes)

    def get(name: str) -> None:
        file = stored.get(name)
        expected = None if file is None else file.blake2b
        _get(url, folder, name, expected)

    others = [name for name in names if name != disk.MANIFEST]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(get, others))
    # From here on it is a corpus for every process of this machine.
    (folder / ARRIVING).rename(folder / disk.MANIFEST)


def _stored_files(manifest: Path, prefix: str) -> Iterator[tuple[str, disk.StoredFile]]:
    """Yield the name of each array in a corpus's folder, and its size and hash."""
    for record in disk.read_record(manifest, disk.Manifest).shards:
        for name, file in record.files.items():
            yield f"{prefix}{record.name}/{name}", file


def _require_inside(url: str, name: str) -> None:
    """Raise for the name of a file that would lie outside the cache folder."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise LitebertError(
            "LB-274",
            f"{url} names a file outside the corpus",
            received=name,
            next="check where this corpus comes from",
        )


def _require_room(url: str, folder: Path, num_bytes: int) -> None:
    free = free_bytes(folder)
    if num_bytes <= free:
        return
    raise ResourceError(
        "LB-271",
        f"the cache has no room for {url}",
        received=files.format_bytes(num_bytes),
        expected=f"at most {files.format_bytes(free)}",
        next="free some space, or set XDG_CACHE_HOME to a folder on a larger disk",
    )


def _get(url: str, folder: Path, name: str, expected: str | None = None) -> None:
    """Fetch a file unless it is here; `expected` is its hash."""
    path = folder / name

    def is_here() -> bool:
        if not path.is_file():
            return False
        return expected is None or files.hash_file(path) == expected

    for _ in range(HASH_ATTEMPTS):
        if is_here():  # an existing copy may be damaged, too
            return
        files.write_stream(path, read_object(f"{url}/{name}"))
    if is_here():
        return
    path.unlink()
    raise disk.damaged(
        f"{url}/{name}",
        received="a different hash each time it was fetched",
        expected=f"blake2b {expected:.16}…",
        next=f"litebert corpus push FOLDER {url}",
    )


def _read(url: str) -> bytes:
    return b"".join(read_object(url))
