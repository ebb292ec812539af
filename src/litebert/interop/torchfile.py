"""Read tensors from a file of torch.save, zip archive or older stream, without running it."""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import torch
from torch import Tensor

from litebert.errors import DamagedError, LitebertError
from litebert.interop.statepickle import DamagedPickleError, PickleReader, RefusedPickleError, Storage, View

_ZIP_MAGIC = b"PK\x03\x04"
_PICKLE_MAGIC = b"\x80"
_STREAM_MAGIC = 0x1950A86A20F9469CFC6C
_STREAM_PROTOCOL = 1001
_LONGEST_PICKLE = 16 << 20
_LONGEST_DIRECTORY = 4 << 20
_MOST_ENTRIES = 10_000
_MOST_AXES = 8
_LOCAL_HEADER = 30
_DTYPES = {
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
}


@dataclass(frozen=True)
class _ByteRange:
    """Where some bytes of a file are, and their checksum if the format has one."""

    start: int
    end: int
    crc: int | None = None

    def read(self, file: io.BufferedReader) -> bytearray:
        """Read the bytes; nothing is mapped, as a mapped file that shrinks crashes the process."""
        file.seek(self.start)
        data = bytearray(self.end - self.start)
        if file.readinto(data) != len(data):
            raise BadZipFile("it became shorter while it was read")
        if self.crc is not None and zlib.crc32(data) != self.crc:
            raise BadZipFile(f"the bytes at {self.start:,} are not those that were saved")
        return data


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Read a state dict as it was saved; tensors that shared a storage share it again.

    Raises:
        LitebertError: LB-730, the pickle contains more than a state dict.
        DamagedError: LB-731, the file is incomplete or damaged.
    """
    with _explained(path), path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        start = bytes(_ByteRange(0, min(4, size)).read(file))
        if start == _ZIP_MAGIC:
            state, places = _read_archive(path, file, size)
        elif start.startswith(_PICKLE_MAGIC):
            state, places = _read_stream(file, size)
        else:
            raise BadZipFile(f"it begins with {start!r}")
        return _tensors(_views(state), file, places)


def _views(state: object) -> dict[str, View]:
    """Return the tensors of a state dict; a larger checkpoint is refused with its contents."""
    if not isinstance(state, dict) or not state:
        raise RefusedPickleError("no dictionary of tensors")
    views = {str(name): view for name, view in state.items() if isinstance(view, View)}
    if others := [str(name) for name in state if str(name) not in views]:
        raise RefusedPickleError(f"besides tensors: {', '.join(sorted(others)[:5])}"[:200])
    return views


def _tensors(views: Mapping[str, View], file: io.BufferedReader, places: Mapping[str, _ByteRange]) -> dict[str, Tensor]:
    storages: dict[str, Tensor] = {}
    tensors = {}
    for name, view in views.items():
        _require_inside(name, view)
        key = view.storage.key
        if key not in storages:
            dtype = _DTYPES[view.storage.kind]
            storages[key] = torch.frombuffer(places[key].read(file), dtype=dtype)
        tensors[name] = storages[key].as_strided(view.shape, view.stride, view.offset)
    return tensors


def _require_inside(name: str, view: View) -> None:
    """Refuse a tensor that reaches beyond its storage, or has more numbers than it."""
    room = view.storage.size
    is_shaped = len(view.shape) == len(view.stride) <= _MOST_AXES
    axes = list(zip(view.shape, view.stride, strict=False))
    last = view.offset + sum((length - 1) * step for length, step in axes)
    is_inside = last < room and all(step <= room for step in view.stride)
    if not is_shaped or not is_inside or not 1 <= math.prod(view.shape) <= room:
        raise BadZipFile(f"{name[:100]} is empty, or reaches past its storage of {room:,} numbers")


def _num_bytes(storage: Storage) -> int:
    return storage.size * _DTYPES[storage.kind].itemsize


def _read_archive(path: Path, file: io.BufferedReader, size: int) -> tuple[object, dict[str, _ByteRange]]:
    """Return the pickled value of a zip archive, and where each storage is."""
    entries = _entries(path, file, size)
    folders = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(folders) != 1:
        raise BadZipFile("it is an archive without data.pkl")
    top = folders[0]
    order = entries.get(f"{top}byteorder")
    if order and order.read(file) != b"little":
        raise BadZipFile("its numbers are big-endian")
    pickled = entries[f"{top}data.pkl"]
    if pickled.end - pickled.start > _LONGEST_PICKLE:
        raise BadZipFile(f"data.pkl has {pickled.end - pickled.start:,} bytes")
    reader = PickleReader()
    state = reader.read(io.BytesIO(pickled.read(file)))
    places = {}
    for key, storage in reader.storages.items():
        place = entries.get(f"{top}data/{key}", _ByteRange(0, -1))
        if place.end - place.start != _num_bytes(storage):
            raise BadZipFile(f"storage {key[:100]} has another size than data.pkl says")
        places[key] = place
    return state, places


class _Directory(io.FileIO):
    """A file that refuses reads longer than the directory of a plausible archive."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read on; zipfile reads the complete directory in one call."""
        wanted = _LONGEST_DIRECTORY if size is None or size < 0 else size
        if wanted > _LONGEST_DIRECTORY:
            raise BadZipFile(f"its directory has {wanted:,} bytes")
        return super().read(wanted) or b""


def _entries(path: Path, file: io.BufferedReader, size: int) -> dict[str, _ByteRange]:
    """Return where each file of an archive is; each is stored uncompressed, without overlap."""
    with _Directory(path) as directory, ZipFile(directory) as archive:
        infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    places: dict[str, _ByteRange] = {}
    free_from = 0
    for info in infos:
        place = _place(info, file, size)
        if info.filename in places or info.header_offset < free_from or len(infos) > _MOST_ENTRIES:
            raise BadZipFile(f"{info.filename[:100]} overlaps another entry, or there are too many")
        places[info.filename] = place
        free_from = place.end
    return places


def _place(info: ZipInfo, file: io.BufferedReader, size: int) -> _ByteRange:
    begin = info.header_offset + _LOCAL_HEADER
    is_plain = info.compress_type == ZIP_STORED and not info.flag_bits & 1
    if not is_plain or info.file_size != info.compress_size or begin > size:
        raise BadZipFile(f"{info.filename[:100]} is not stored as it is")
    header = _ByteRange(info.header_offset, begin).read(file)
    start = begin + sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    if not header.startswith(_ZIP_MAGIC) or start + info.file_size > size:
        raise BadZipFile(f"{info.filename[:100]} is not where the directory says")
    return _ByteRange(start, start + info.file_size, info.CRC)


def _read_stream(file: io.BufferedReader, size: int) -> tuple[object, dict[str, _ByteRange]]:
    """Return the pickled value of a file of torch before 1.6, and where each storage is.

    Five pickles (magic, protocol, system, value, keys), then for each key a count and the numbers.
    """
    head = io.BytesIO(_ByteRange(0, min(size, _LONGEST_PICKLE)).read(file))
    if PickleReader().read(head) != _STREAM_MAGIC:
        raise BadZipFile("it is a pickle, but not one of torch.save")
    protocol, system = PickleReader().read(head), PickleReader().read(head)
    is_little = isinstance(system, dict) and system.get("little_endian") is True
    if protocol != _STREAM_PROTOCOL or not is_little:
        raise BadZipFile("its protocol is unknown, or its numbers are big-endian")
    reader = PickleReader()
    state = reader.read(head)
    keys = PickleReader().read(head)
    if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(reader.storages):
        raise BadZipFile("its storages are not those that its tensors need")
    places, position = {}, head.tell()
    for key in map(str, keys):
        storage = reader.storages[key]
        begin, position = position + 8, position + 8 + _num_bytes(storage)
        if position > size:
            raise BadZipFile(f"storage {key[:100]} is cut off")
        if int.from_bytes(_ByteRange(begin - 8, begin).read(file), "little") != storage.size:
            raise BadZipFile(f"storage {key[:100]} has another size than its tensors need")
        places[key] = _ByteRange(begin, position)
    return state, places


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the errors of the readers into errors for the user."""
    try:
        yield
    except RefusedPickleError as error:
        raise LitebertError(
            "LB-730",
            f"{path} contains more than a state dict of tensors; nothing in it was run",
            received=str(error),
            expected="one dictionary of tensors, as torch.save(model.state_dict(), path) writes it",
            next="save the state dict alone, or use the safetensors file of the same model",
        ) from error
    except (DamagedPickleError, BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise DamagedError(
            "LB-731",
            f"{path} is not a complete file of torch.save",
            received=str(error) or type(error).__name__,
            expected="a zip archive of torch 1.6 or newer, or the stream that older ones wrote",
            next="fetch or save the file again",
        ) from error
