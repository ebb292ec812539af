"""The tensors of a folder: one safetensors file, or several with an index, and the hash that tells damage."""

import ctypes
import hashlib
import mmap
import sys
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from litebert.config import ATTENTION_KINDS
from litebert.errors import DamagedError, LitebertError
from litebert.files import parse_json, read_json, write_stream

WEIGHTS_FILE = "model.safetensors"
INT8_FILE = "model-int8.safetensors"
OTHER_FILE = "model-{}.safetensors"  # of a kind of attention
INDEX_FILE = "model.safetensors.index.json"
_HEADER_LIMIT = 1 << 20  # some 10,000 tensors; parsing takes forty times as much memory
_PAGEOUT = 21  # MADV_PAGEOUT (Linux 5.4): unlike MADV_DONTNEED it loses nothing that was written

# The key, in a file's own metadata, of the hash of this file with _NO_HASH in its place; transformers ignores it.
# Most processors compute SHA-256 in hardware, five times as fast as hashlib's blake2b.
_HASH, _NO_HASH = "sha256", b"0" * 64


def damaged_model(code: str, what: str, received: object, expected: str | None = None) -> DamagedError:
    """Return the error for a model's file whose contents cannot be used."""
    again = "fetch or make the model again, or correct the file"
    return DamagedError(code, what, received=received, expected=expected, next=again)


def write_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors as one safetensors file with its hash, atomically."""
    data = memoryview(save({name: t.cpu().contiguous() for name, t in tensors.items()}, metadata={"format": "pt"}))
    stop = 8 + int.from_bytes(data[:8], "little")
    # The hash is added by hand: the library writes several entries of metadata in an order that is never the same.
    table = bytes(data[8:stop]).replace(b'{"format":"pt"', b'{"format":"pt","%s":"%s"' % (_HASH.encode(), _NO_HASH), 1)
    table = table.rstrip(b" ") + b" " * (-len(table.rstrip(b" ")) % 8)  # tensors are aligned to 8 bytes
    header = len(table).to_bytes(8, "little") + table
    digest = hashlib.sha256(header)
    digest.update(data[stop:])
    write_stream(path, (header.replace(_NO_HASH, digest.hexdigest().encode(), 1), data[stop:]))


def weights_path(folder: Path) -> Path:
    """Return the single file with the weights; model.safetensors if there is none."""
    paths = [folder / name for name in (WEIGHTS_FILE, INT8_FILE, *map(OTHER_FILE.format, ATTENTION_KINDS))]
    return next((path for path in paths if path.is_file()), paths[0])


def _weight_files(folder: Path) -> list[Path]:
    """Return the file with the weights, or those that an index lists, all in its own folder."""
    single, index = weights_path(folder), folder / INDEX_FILE
    if single.is_file() or not index.is_file():
        return [single]
    table = read_json(index, command=f"fetch {index} again").get("weight_map")
    names = sorted(set(map(str, table.values()))) if isinstance(table, dict) else []
    strange = [name for name in names if Path(name).name != name or "\0" in name]
    if not names or strange:
        what, received = f"{index} does not list the files of a model", ", ".join(strange[:3]) or "no weight_map"
        raise damaged_model("LB-608", what, received, "names of files in the same folder")
    return [folder / name for name in names]


def read_weights(folder: Path) -> tuple[dict[str, Tensor], bool]:
    """Map all tensors of a folder, and tell whether each file has a hash, by which damage is noticed.

    Without a hash, unused tensors are never read.
    """
    tensors, has_hashes = dict[str, Tensor](), True
    for path in _weight_files(folder):
        header, stored = _read_header(path)
        try:
            tensors |= load_file(path)
        except (SafetensorError, ValueError, OSError, MemoryError) as error:
            raise _incomplete(path, error) from error
        if stored is None:
            has_hashes = False
            continue
        digest = hashlib.sha256(header.replace(stored, _NO_HASH, 1))
        with path.open("rb") as file:
            file.seek(len(header))
            while piece := file.read(1 << 20):
                digest.update(piece)
        if digest.hexdigest().encode() != stored:
            theirs = f"SHA-256 {stored[:16].decode('utf-8', 'replace')}…, written into the file with them"
            what = f"the weights in {path} are not those that were saved"
            raise damaged_model("LB-676", what, f"SHA-256 {digest.hexdigest()[:16]}…", theirs)
    return tensors, has_hashes


def _read_header(path: Path) -> tuple[bytes, bytes | None]:
    """Return the start of a file with its header, checked before anything else is allocated, and the hash in it."""
    if not path.is_file():
        others = [each.name for each in path.parent.glob("*") if each.suffix in (".bin", ".h5", ".msgpack", ".index")]
        what, but = f"there are no weights in {path.parent}", f", but {', '.join(sorted(others)[:3])}" if others else ""
        next_step = "litebert import --help lists what can be converted"
        raise LitebertError("LB-602", what, received=f"no {path.name}{but}", next=next_step)
    with path.open("rb") as file:
        start, room = file.read(8), path.stat().st_size - 8
        size = int.from_bytes(start, "little")
        if start.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
            raise _incomplete(path, "a pickle, as torch.save writes it")
        if len(start) < 8 or size > min(_HEADER_LIMIT, room):
            raise _incomplete(path, f"a header of {size:,} bytes in {room + 8:,}")
        header = file.read(size)
    try:
        table = parse_json(header.decode(), distinct_keys=True)
    except (ValueError, RecursionError) as error:
        raise _incomplete(path, f"a header that is not valid: {error}") from error
    metadata = table.get("__metadata__") if isinstance(table, dict) else None
    stored = metadata.get(_HASH) if isinstance(metadata, dict) else None
    return start + header, stored.encode("utf-8", "replace") if isinstance(stored, str) and stored else None


def _incomplete(path: Path, received: object) -> DamagedError:
    what, expected = f"{path} is not a complete safetensors file", "one of safetensors; pickles are never opened here"
    return damaged_model("LB-603", what, received, expected)


def widened(tensor: Tensor, place: str) -> Tensor:
    """Return floats as float32, which must be finite, and integers unchanged; errors name the `place`, FILE: TENSOR."""
    if not tensor.is_floating_point():
        return tensor
    wide = tensor.float()
    # aminmax copies nothing, and returns NaN if there is one.
    if wide.numel() and not all(bool(end.isfinite()) for end in wide.aminmax()):
        raise damaged_model("LB-607", f"{place} has weights that are not finite", "NaN or infinity")
    return wide


def release(tensors: Iterable[Tensor]) -> None:
    """Give the pages of tensors in a mapped file, and free heap memory, back to the system (Linux only).

    Packed weights have their own memory; after that, the file is only read for rows of the word table.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    for tensor in tensors:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > start:
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _PAGEOUT)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
