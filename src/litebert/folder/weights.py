"""Read and write the tensors of a folder: one safetensors file, or several with an index."""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from litebert.config import ATTENTION_KINDS
from litebert.errors import DamagedError, LitebertError
from litebert.fast.engine import require_finite
from litebert.files import read_json, write_bytes

WEIGHTS_FILE = "model.safetensors"
INT8_FILE = "model-int8.safetensors"
OTHER_FILE = "model-{}.safetensors"  # of a kind of attention
INDEX_FILE = "model.safetensors.index.json"
_HEADER_LIMIT = 1 << 20  # some 10,000 tensors; parsing takes forty times as much memory
_KINDS = {
    b"PK\x03\x04": "a zip archive, as torch.save writes it",
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"\x1f\x8b": "a gzip archive",
    b"\x89HDF": "an HDF5 file",
    b"version ": "a Git LFS pointer, not the file itself",
}


def write_weights(path: Path, tensors: dict[str, Tensor], *, dtype: torch.dtype) -> None:
    """Write tensors as one safetensors file, atomically; floats as `dtype`, integers unchanged."""
    cast = {
        name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in tensors.items()
    }
    write_bytes(path, save(cast, metadata={"format": "pt"}))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Map all tensors of a folder; unused ones are never read from disk.

    Raises:
        LitebertError: LB-602, there are no weights.
        DamagedError: LB-603, LB-608, a file or the index is damaged.
    """
    single, index = weights_path(folder), folder / INDEX_FILE
    if single.is_file() or not index.is_file():
        return _mapped(single)
    tensors: dict[str, Tensor] = {}
    names = shard_names(
        "LB-608",
        f"{index} does not list the files of a model",
        index,
        expected="names of safetensors files in the same folder",
        next="fetch the model again",
    )
    for name in names:
        tensors |= _mapped(folder / name)
    return tensors


def weights_path(folder: Path) -> Path:
    """Return the single file with the weights; model.safetensors if there is none."""
    paths = [folder / name for name in (WEIGHTS_FILE, INT8_FILE, *map(OTHER_FILE.format, ATTENTION_KINDS))]
    return next((path for path in paths if path.is_file()), paths[0])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read one safetensors file; integers are unchanged, floats become float32."""
    return {name: widened(t, f"{path}: {name}") for name, t in _mapped(path).items()}


def widened(tensor: Tensor, place: str) -> Tensor:
    """Return floats as float32, and integers unchanged.

    Raises:
        DamagedError: LB-607, a number is NaN or infinite.
    """
    if not tensor.is_floating_point():
        return tensor
    wide = tensor.float()
    require_finite(
        "LB-607",
        f"{place} has weights that are not finite",
        {place.rpartition(": ")[2]: wide},
        expected="finite weights",
        next="fetch the model again, or take an earlier checkpoint",
    )
    return wide


def _mapped(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise LitebertError(
            "LB-602",
            f"there are no weights in {path.parent}",
            received=f"{path} missing{_instead_of(path)}",
            expected="a folder with config.json and model.safetensors",
            next="litebert import --help lists what can be converted",
        )
    _require_plausible_header(path)
    try:
        return load_file(path)
    except (SafetensorError, ValueError, OSError, MemoryError) as error:
        raise _damaged(path, str(error)) from error


def shard_names(code: str, what: str, index: Path, *, expected: str, next: str) -> list[str]:
    """Return the names of the files that an index lists.

    Raises:
        DamagedError: It lists none, or files in another folder; the caller gives the message.
    """
    table = read_json(index, command=f"fetch {index} again").get("weight_map")
    names = sorted(set(map(str, table.values()))) if isinstance(table, dict) else []
    strange = [name for name in names if Path(name).name != name or "\0" in name]
    if not names or strange:
        received = ", ".join(strange[:3]) or "no weight_map"
        raise DamagedError(code, what, received=received, expected=expected, next=next)
    return names


def _require_plausible_header(path: Path) -> None:
    """Raise LB-603, before anything is allocated, unless a file has a valid safetensors header."""
    with path.open("rb") as file:
        start = file.read(8)
        size = int.from_bytes(start, "little")
        for magic, kind in _KINDS.items():
            if start.startswith(magic):
                raise _damaged(path, kind)
        if len(start) < 8 or size > min(_HEADER_LIMIT, path.stat().st_size - 8):
            raise _damaged(path, f"a header of {size:,} bytes in {path.stat().st_size:,}")
        try:
            json.loads(file.read(size), object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise _damaged(path, f"a header that is not valid: {error}") from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("the same name is listed twice")
    return dict(pairs)


def _instead_of(path: Path) -> str:
    """Mention files of other formats in the folder."""
    if not path.parent.is_dir():
        return ""
    others = [p for p in path.parent.iterdir() if p.suffix in (".bin", ".h5", ".msgpack", ".index")]
    return f", but there is {', '.join(sorted(p.name for p in others)[:3])}" if others else ""


def _damaged(path: Path, received: str) -> DamagedError:
    return DamagedError(
        "LB-603",
        f"{path} is not a complete safetensors file",
        received=received,
        expected="a file written by safetensors; pickled weights are never opened",
        next="fetch or save the model again; litebert import --help lists what can be converted",
    )


_PAGEOUT = 21
"""MADV_PAGEOUT (Linux 5.4): unlike MADV_DONTNEED it loses nothing that was written."""


def release(tensors: Iterable[Tensor]) -> None:
    """Give the pages of tensors in a mapped file, and free heap memory, back to the system.

    Packed weights have their own memory; after that, the file is only read for rows of the word
    table. On systems other than Linux this does nothing.
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
