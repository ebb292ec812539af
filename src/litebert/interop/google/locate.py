"""Find a checkpoint: in an archive, which is unpacked, in a folder, or by its prefix; and what lies beside it."""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, cast

from litebert.errors import DamagedError, LitebertError, disk_errors

MAX_BYTES = 10 << 30
MAX_ENTRIES = 1_000  # the released models have at most nine files
MAX_RATIO = 100  # unpacked bytes per byte of an archive, beyond the first MiB
_MAX_READ = 1 << 20  # bytes that tarfile may ask for at once: it would read a header of any size into memory

_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STATE = re.compile(r'^model_checkpoint_path:\s*"([^"]*)"', re.MULTILINE)


@contextmanager
def checkpoint_at(path: Path, *, workplace: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the prefix of the checkpoint at a path, and notes about the choice.

    An archive is unpacked in `workplace` until the end of the block.
    """
    if path.is_dir():  # "." and "/" have no name
        yield _find_in(path, path)
        return
    prefix = path.with_name(_PART.sub("", path.name))
    if prefix.with_name(f"{prefix.name}.index").is_file():
        yield prefix, []
    elif path.is_file() and _is_tar(path):
        workplace.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".unpacked-", dir=workplace) as folder:
            unpack(path, Path(folder))
            yield _find_in(Path(folder), path)
    else:
        raise _none_there(path)


def find_config(prefix: Path) -> Path:
    """Return the configuration next to a checkpoint, or in its module's assets."""
    found = _find_beside(prefix, ("albert_config.json", "albert_config*.json", "bert_config*.json"))
    if found is None:
        raise LitebertError(
            "LB-715",
            f"there is no albert_config.json with the checkpoint {prefix}",
            next="put the file that belongs to it there, or give it with --config FILE",
        )
    return found


def find_vocabulary(prefix: Path) -> Path | None:
    """Return the SentencePiece model or WordPiece vocabulary next to a checkpoint."""
    return _find_beside(prefix, ("30k-clean.model", "spiece.model", "*.model", "vocab.txt", "vocab*.txt"))


def _find_beside(prefix: Path, patterns: tuple[str, ...]) -> Path | None:
    folder = prefix.parent
    module = folder.parent if folder.name == "variables" else folder  # a TF-Hub module keeps them in assets
    for pattern in patterns:
        for place in (folder, module, module / "assets"):
            if found := sorted(path for path in place.glob(pattern) if path.is_file()):
                return found[0]
    return None


def _find_in(folder: Path, given: Path) -> tuple[Path, list[str]]:
    """Find the checkpoint in a folder, or in a folder below; of several, the one that `checkpoint` names."""
    for pattern in ("*.index", "*/*.index", "*/*/*.index"):
        if found := sorted(path.with_suffix("") for path in folder.glob(pattern) if path.is_file()):
            break
    else:
        raise _none_there(given)
    if len(found) == 1:
        return found[0], []
    state = found[0].with_name("checkpoint")
    if state.is_file() and state.stat().st_size < 1 << 20:
        match = _STATE.search(state.read_text("utf-8", "replace"))
        name = match[1].rpartition("/")[2] if match else ""
        for named in (each for each in found if each.name == name):
            others = ", ".join(each.name for each in found if each != named)
            return named, [f"took {name}, which the file `checkpoint` names; also there: {others}"]
    raise LitebertError(
        "LB-716",
        f"{given} has more than one checkpoint, and no file `checkpoint` that names one of them",
        received=", ".join(prefix.name for prefix in found[:8]),
        next=f"litebert import google {found[-1]} --output FOLDER",
    )


def _none_there(given: Path) -> LitebertError:
    return LitebertError(
        "LB-718",
        f"there is no TensorFlow checkpoint at {given}",
        received=f"{given.name}, with no .index of this name" if given.exists() else "no such path",
        expected="a .tar.gz, a folder with *.index, or a prefix such as model.ckpt-best; a single file is of before "
        "TensorFlow 1.0: restore it there and save it with tf.train.Saver()",
        next="litebert import google --help; unpack a .zip yourself and give its folder",
    )


def _is_tar(path: Path) -> bool:
    """Tell by the first bytes whether a file is a tar, plain or gzipped."""
    with path.open("rb") as file:
        start = file.read(512)
    return start.startswith(b"\x1f\x8b") or start[257:262] == b"ustar"


def unpack(archive: Path, into: Path) -> None:
    """Write the plain files of a .tar or .tar.gz below the folder `into`, within limits of size and number."""
    doubtful = "check where the archive comes from; unpack it yourself and give the folder instead"
    unpacked = 0
    try:
        with disk_errors(into), archive.open("rb") as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            plain = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_gzip else file
            bounded = _Bounded(plain, min(MAX_BYTES, MAX_RATIO * archive.stat().st_size + (1 << 20)))
            try:
                with tarfile.open(fileobj=cast(BinaryIO, bounded), mode="r:") as tar:
                    for number, member in enumerate(tar):
                        if number == MAX_ENTRIES:
                            raise _TooLargeError(f"more than {MAX_ENTRIES:,} entries")
                        unpacked += max(0, member.size)  # a sparse file can be larger than its place in the archive
                        bounded.require(unpacked)
                        if not (member.isreg() or member.isdir()) or member.issparse():
                            raise tarfile.SpecialFileError(member)
                        tar.extract(member, into, set_attrs=False, filter="data")
                while bounded.read(_MAX_READ):  # to the end, where gzip's checksum is
                    pass
            except gzip.BadGzipFile as error:  # an OSError, but not of the disk
                raise tarfile.ReadError(str(error)) from error
    except _TooLargeError as error:
        limits = f"at most {MAX_BYTES >> 30} GiB, {MAX_ENTRIES:,} files and {MAX_RATIO} times the archive's size"
        what = f"{archive} becomes too large when it is unpacked"
        raise LitebertError("LB-701", what, received=error, expected=limits, next=doubtful) from error
    except tarfile.FilterError as error:
        what = f"{archive} contains other things than plain files inside a folder"
        raise LitebertError("LB-700", what, received=error, next=doubtful) from error
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        what = f"{archive} is cut off or damaged"
        raise DamagedError("LB-702", what, received=error, next=f"fetch {archive.name} again") from error


class _TooLargeError(Exception):
    pass


class _Bounded:
    """The unpacked bytes of an archive, of which no more are read than an archive of its size may hold."""

    def __init__(self, plain: BinaryIO, limit: int) -> None:
        self._plain, self._limit = plain, limit
        self.tell = plain.tell

    def require(self, position: int) -> None:
        """Refuse to go beyond the limit."""
        if position > self._limit:
            raise _TooLargeError(f"{position:,} bytes or more, {self._limit:,} allowed")

    def read(self, size: int) -> bytes:
        if size > _MAX_READ:
            raise _TooLargeError(f"a header of {size:,} bytes")
        data = self._plain.read(size)
        self.require(self._plain.tell())
        return data

    def seek(self, position: int) -> int:
        self.require(position)
        return self._plain.seek(position)
