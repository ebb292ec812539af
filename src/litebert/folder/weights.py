"""The tensors of a model folder: safetensors files with a hash of what they hold.

A folder has one file, or several that an index lists. Nothing in a file is trusted:
its header is checked before anything is allocated, pickles are never opened, and if
the file has a hash, it must be that of its contents.
"""

import ctypes
import hashlib
import mmap
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from litebert.errors import DamagedError, LitebertError
from litebert.files import hash_file, parse_json, read_json, write_stream
from litebert.folder.names import damaged_model
from litebert.plugins import ATTENTION_KINDS

WEIGHTS_FILE = "model.safetensors"
INT8_FILE = "model-int8.safetensors"
OTHER_FILE = "model-{}.safetensors"  # for a kind of attention
INDEX_FILE = "model.safetensors.index.json"
_HEADER_LIMIT = 1 << 20  # some 10,000 tensors; parsing takes forty times as much memory
# MADV_PAGEOUT (Linux 5.4): unlike MADV_DONTNEED it loses nothing that was written
_PAGEOUT = 21

# The metadata key for the hash of a file, computed with _NO_HASH in its place;
# transformers ignores it. Most processors compute SHA-256 in hardware, five times as
# fast as hashlib's blake2b.
_HASH = "sha256"
_NO_HASH = b"0" * 64
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_OTHER_FORMATS = (".bin", ".h5", ".msgpack", ".index")


@dataclass(frozen=True)
class Weights:
    """The tensors of a folder by their names on disk, mapped from its files."""

    tensors: dict[str, Tensor]
    unhashed: tuple[str, ...]  # names of files in which damage cannot be detected


# ---- writing -------------------------------------------------------------------------


def write_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors as one safetensors file with its hash, atomically."""
    stored = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    data = memoryview(save(stored, metadata={"format": "pt"}))
    stop = 8 + int.from_bytes(data[:8], "little")

    # The hash is added by hand: the library writes several entries of metadata in an
    # order that varies.
    entry = f'"{_HASH}":"{_NO_HASH.decode()}"'
    begin = b'{"format":"pt"'
    table = bytes(data[8:stop]).rstrip(b" ")
    table = table.replace(begin, begin + b"," + entry.encode(), 1)
    # tensors are aligned to 8 bytes
    table += b" " * (-len(table) % 8)

    header = len(table).to_bytes(8, "little") + table
    digest = hashlib.sha256(header)
    digest.update(data[stop:])
    hashed = header.replace(_NO_HASH, digest.hexdigest().encode(), 1)
    write_stream(path, (hashed, data[stop:]))


# ---- which files ---------------------------------------------------------------------


def weights_path(folder: Path) -> Path:
    """Return the single file with the weights; model.safetensors if there is none."""
    by_attention = [OTHER_FILE.format(kind) for kind in ATTENTION_KINDS]
    for name in (WEIGHTS_FILE, INT8_FILE, *by_attention):
        if (folder / name).is_file():
            return folder / name
    return folder / WEIGHTS_FILE


def hash_weights(folder: Path) -> str:
    """Return the blake2b of a folder's weights in hex; if there are several files, the
    hashes of all.
    """
    return " ".join(map(hash_file, sorted(folder.glob("*.safetensors"))))


def weights_files(folder: Path) -> list[Path]:
    """Return the files with the weights: a single one, or those that an index lists."""
    single = weights_path(folder)
    index = folder / INDEX_FILE
    if single.is_file() or not index.is_file():
        return [single]
    listed = read_json(index, command=f"fetch {index} again").get("weight_map")
    names = list[str]()
    if isinstance(listed, dict):
        names = sorted(set(map(str, listed.values())))
    outside = [name for name in names if Path(name).name != name or "\0" in name]
    if not names or outside:
        raise damaged_model(
            "LB-608",
            f"{index} does not list the files of a model",
            ", ".join(outside[:3]) or "no weight_map",
            "names of files in the same folder",
        )
    return [folder / name for name in names]


# ---- reading -------------------------------------------------------------------------


def read_weights(folder: Path) -> Weights:
    """Map all tensors of a folder. Without a hash, unused tensors are never read."""
    tensors = dict[str, Tensor]()
    unhashed = list[str]()
    for path in weights_files(folder):
        require_weights(path)
        part = read_tensors(path)
        tensors |= part.tensors
        unhashed += part.unhashed
    return Weights(tensors, tuple(unhashed))


def read_tensors(path: Path) -> Weights:
    """Map the tensors of one file, after its header and its hash are checked."""
    header = _read_header(path)
    try:
        table: Any = parse_json(header[8:].decode(), distinct_keys=True)
        tensors = load_file(path)  # it validates the header
        metadata: dict[str, str] = table.get("__metadata__") or {}
    except (SafetensorError, ValueError, OSError, MemoryError) as error:
        raise _incomplete(path, error) from error
    stored = metadata.get(_HASH)
    if not stored:
        return Weights(tensors, (path.name,))
    _check_hash(path, header, stored)
    return Weights(tensors, ())


def require_weights(path: Path) -> None:
    """Raise unless there is such a file; say which other formats are there."""
    if path.is_file():
        return
    folder = path.parent
    files = sorted(folder.glob("*"))
    names = [file.name for file in files if file.suffix in _OTHER_FORMATS]
    received = f"no {path.name}"
    if names:
        received += f", but {', '.join(names[:3])}"
    raise LitebertError(
        "LB-602",
        f"there are no weights in {folder}",
        received=received,
        next="litebert import --help lists what can be converted",
    )


def _read_header(path: Path) -> bytes:
    """Return the header of a file with its size, both checked before anything else is
    allocated.
    """
    with path.open("rb") as file:
        start = file.read(8)
        num_bytes = path.stat().st_size
        size = int.from_bytes(start, "little")
        if start.startswith(_PICKLES):
            raise _incomplete(path, "a pickle, as torch.save writes it")
        if len(start) < 8 or size > min(_HEADER_LIMIT, num_bytes - 8):
            raise _incomplete(path, f"a header of {size:,} bytes in {num_bytes:,}")
        return start + file.read(size)


def _check_hash(path: Path, header: bytes, stored: str) -> None:
    """Raise if the contents of a file are not those whose hash is stored in it."""
    without_hash = header.replace(stored.encode(), _NO_HASH, 1)
    with path.open("rb") as file:
        file.seek(len(header))
        begun = partial(hashlib.sha256, without_hash)
        computed = hashlib.file_digest(file, begun).hexdigest()
    if computed != stored:
        raise damaged_model(
            "LB-676",
            f"the weights in {path} are not those that were saved",
            f"SHA-256 {computed[:16]}…",
            f"SHA-256 {stored[:16]}…, written into the file with them",
        )


def _incomplete(path: Path, received: object) -> DamagedError:
    return damaged_model(
        "LB-603",
        f"{path} is not a complete safetensors file",
        received,
        "a complete one; pickles are never opened here",
    )


def widen(tensor: Tensor, place: str) -> Tensor:
    """Return floats as float32, which must be finite, and integers unchanged; errors
    name the `place`, FILE: TENSOR.
    """
    if not tensor.is_floating_point():
        return tensor
    wide = tensor.float()
    # aminmax copies nothing, and returns NaN if there is one.
    lowest, highest = wide.aminmax()
    if not (lowest.isfinite() and highest.isfinite()):
        raise damaged_model(
            "LB-607", f"{place} has weights that are not finite", "NaN or infinity"
        )
    return wide


class Stamp(NamedTuple):
    """What the system says of a file of weights."""

    inode: int  # a file that is replaced as a whole has another one
    size: int
    modified: int  # in nanoseconds


Stamps: TypeAlias = dict[str, Stamp]
"""The stamp of each file of weights of a folder, by its name."""


def stamp_weights(folder: Path) -> Stamps:
    stamps: Stamps = {}
    for path in folder.glob("*.safetensors"):
        try:
            status = path.stat()
        except OSError:  # a link to nothing, or a file that was deleted just now
            continue
        stamps[path.name] = Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
    return stamps


def require_unchanged(folder: Path, stamps: Stamps) -> None:
    """Check that no file of weights was written to since its stamp was taken.

    A file that was replaced as a whole is another one: the mapped one has not changed.
    """
    for name, stamp in stamp_weights(folder).items():
        before = stamps.get(name, stamp)
        if before != stamp and before.inode == stamp.inode:
            raise DamagedError(
                "LB-686",
                f"{folder / name} has changed since the model was loaded",
                received="another size or time of change",
                next="load the model again; a server does so on SIGHUP",
            )


def release(tensors: Iterable[Tensor]) -> None:
    """Return the pages of tensors in a mapped file, and free heap memory, to the system
    (Linux only).
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    for tensor in tensors:
        # only whole pages: others also hold parts of other tensors
        begin = tensor.data_ptr()
        end = begin + tensor.nbytes
        first_page = -(-begin // mmap.PAGESIZE)  # rounded up
        stop_page = end // mmap.PAGESIZE
        if stop_page > first_page:
            address = ctypes.c_void_p(first_page * mmap.PAGESIZE)
            size = ctypes.c_size_t((stop_page - first_page) * mmap.PAGESIZE)
            libc.madvise(address, size, _PAGEOUT)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
