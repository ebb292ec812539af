"""Find a checkpoint of TensorFlow: in an archive, which is unpacked, in a folder, or at
its prefix.
"""

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, BinaryIO, cast

from litebert.errors import DamagedError, LitebertError, disk_errors

MAX_BYTES = 10 << 30
MAX_ENTRIES = 1_000  # the released models have at most nine files
MAX_PARTS = 32  # of a path in an archive; theirs have at most three
MAX_RATIO = 100  # unpacked bytes per byte of an archive, beyond the first MiB
_GZIP = b"\x1f\x8b"
_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")


@contextmanager
def open_checkpoint(path: Path, *, workplace: Path) -> Iterator[Path]:
    """Yield the prefix of the checkpoint at a path; an archive is unpacked into
    `workplace` for that time.
    """
    if _is_gzip(path):
        workplace.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".unpacked-", dir=workplace) as folder:
            unpack(path, Path(folder))
            yield _only_checkpoint(Path(folder), path)
    elif path.is_dir():
        yield _only_checkpoint(path, path)
    else:
        prefix = path.with_name(_PART.sub("", path.name))
        if not prefix.with_name(f"{prefix.name}.index").is_file():
            raise _no_checkpoint(path, [])
        yield prefix


def _is_gzip(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def _only_checkpoint(folder: Path, path: Path) -> Path:
    """Return the prefix of the only checkpoint in a folder, or up to two folders below
    it; errors name `path`.
    """
    indices = list[Path]()
    for pattern in ("*.index", "*/*.index", "*/*/*.index"):
        indices += [index for index in folder.glob(pattern) if index.is_file()]
    if len(indices) != 1:
        prefixes = [index.with_suffix("").relative_to(folder) for index in indices]
        names = sorted(prefix.as_posix() for prefix in prefixes)
        raise _no_checkpoint(path, names)
    return indices[0].with_suffix("")


def _no_checkpoint(path: Path, names: list[str]) -> LitebertError:
    """Return the error for a path with no checkpoint, or with several of these `names`."""
    what = f"there is no TensorFlow checkpoint at {path}"
    folder = path if path.is_dir() else path.parent
    advice = f"ls {quote(str(folder))}"
    if names:
        what = f"there is more than one TensorFlow checkpoint at {path}"
        advice = f"litebert import google {quote(str(path / names[0]))} OUTPUT"
    return LitebertError(
        "LB-718",
        what,
        received=", ".join(names[:8]) or None,
        expected="a .tar.gz, a folder with *.index, or a prefix such as"
        " model.ckpt-best (TensorFlow 1.0 or later)",
        next=advice,
    )


def unpack(archive: Path, into: Path) -> None:
    """Extract the plain files of a .tar.gz into the folder `into`, within limits of
    size and number.
    """
    try:
        with disk_errors(into), TemporaryFile(dir=into) as plain:
            _decompress(archive, plain)
            # From a file, tarfile would try to read as many bytes as a header
            # announces; a map ends with the file.
            with mmap(plain.fileno(), 0, access=ACCESS_READ) as contents:
                _extract(contents, into)
    except tarfile.FilterError as error:
        raise LitebertError(
            "LB-701",
            f"{archive} contains more than a checkpoint",
            received=error,
            expected=f"plain files, at most {MAX_BYTES >> 30} GiB, {MAX_ENTRIES:,}"
            f" files and {MAX_RATIO} times its size",
            next="unpack it yourself and give the folder instead",
        ) from error
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        ValueError,
        RecursionError,  # a header about a header about a header ...
        gzip.BadGzipFile,
    ) as error:
        raise DamagedError(
            "LB-702",
            f"{archive} is cut off or damaged",
            received=error,
            next=f"fetch {archive.name} again",
        ) from error


def _decompress(archive: Path, plain: BinaryIO) -> None:
    """Write the contents of a gzip file, read to its end, where its checksum is."""
    limit = min(MAX_BYTES, MAX_RATIO * archive.stat().st_size + (1 << 20))
    with gzip.open(archive) as packed:
        while piece := packed.read(1 << 20):
            plain.write(piece)
            if plain.tell() > limit:
                raise tarfile.FilterError(f"more than {limit:,} bytes")
    plain.flush()


def _extract(contents: mmap, into: Path) -> None:
    with tarfile.TarFile(fileobj=cast(Any, contents)) as tar:
        for number, member in enumerate(tar):
            if number == MAX_ENTRIES:
                raise tarfile.FilterError(f"more than {MAX_ENTRIES:,} entries")
            if member.name.count("/") >= MAX_PARTS:
                raise tarfile.FilterError(f"more than {MAX_PARTS} folders")
            is_plain = (member.isreg() or member.isdir()) and not member.issparse()
            if not is_plain:
                raise tarfile.SpecialFileError(member)
            tar.extract(member, into, set_attrs=False, filter="data")
