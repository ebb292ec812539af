"""Old files of torch.save: their tensors arrive, and whatever else is in them is never run."""

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.interop.huggingface import read_torch_file
from tests.memory import memory_below

BASE = torch.arange(12.0).reshape(3, 4)
STATE = OrderedDict(
    plain=BASE,
    transposed=BASE.t(),
    part=BASE[1:, ::2],
    parameter=torch.nn.Parameter(torch.ones(2, 3)),
    half=torch.tensor([1.5, -2.0], dtype=torch.float16),
    bfloat=torch.tensor([[1.5], [3.0]], dtype=torch.bfloat16),
    double=torch.tensor(3.25, dtype=torch.float64),
    whole=torch.arange(5)[None],
)
ALIVE = torch.tensor([1.0, 2.0])


def _saved(value: object, *, is_archive: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=is_archive)
    return file.getvalue()


def _archive(pickled: bytes, *, compression: int = zipfile.ZIP_STORED, **more: bytes) -> bytes:
    """Put any pickle where torch.save puts the state dict, with one storage of two floats."""
    file = io.BytesIO()
    entries = {"data.pkl": pickled, "data/0": ALIVE.numpy().tobytes(), "version": b"3\n", **more}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(f"model/{name}", data)
    return file.getvalue()


_pickled = partial(pickle.dumps, protocol=2)


def _stream(pickled: bytes) -> bytes:
    """Put any pickle where torch before 1.6 put the state dict."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    return b"".join(map(_pickled, [0x1950A86A20F9469CFC6C, 1001, system])) + pickled + _pickled([])


def _tensor(*, size: object = (2,), stride: object = (1,), offset: object = 0, stored: int = 2) -> bytes:
    """Pickle {'w': tensor} by hand, so that it can lie."""
    parts = ("w", "storage", "0", "cpu", stored, offset, size, stride)
    name, kind, key, place, count, *where = (_pickled(each)[2:-1] for each in parts)
    storage = b"(%bctorch\nFloatStorage\n%b%b%btQ" % (kind, key, place, count)
    arguments = b"(" + storage + b"".join(where) + b"\x89ccollections\nOrderedDict\n)Rt"
    return b"\x80\x02}" + name + b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"Rs."


class Payload:
    """An object whose pickle calls something."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call[0], self.call[1:]


def _payloads(touched: Path) -> dict[str, bytes]:
    """Return pickles that create a file when they are run."""
    shell, code = f"touch {touched}", f"__import__('pathlib').Path({str(touched)!r}).touch()"
    run = Payload(os.system, shell)
    return {
        "reduce": _pickled(run),
        "stack global": pickle.dumps(run, protocol=4),
        "eval": _pickled({"w": Payload(eval, code)}),
        "inst": b"(S'%b'\nios\nsystem\n." % shell.encode(),
        "obj": b"(cos\nsystem\nS'%b'\no." % shell.encode(),
        "hidden below": _pickled(run)[:-1] + b"0}.",
    }


def _read(data: bytes, folder: Path) -> dict[str, torch.Tensor]:
    path = folder / "pytorch_model.bin"
    path.write_bytes(data)
    return read_torch_file(path)


@pytest.mark.parametrize("is_archive", [True, False])
def test_tensors_are_read_as_they_were_saved(tmp_path: Path, is_archive: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))  # its versions are saved, too
    for state in (STATE, module.state_dict()):
        read = _read(_saved(state, is_archive=is_archive), tmp_path)
        assert list(read) == list(state)
        assert all(read[name].dtype == t.dtype and torch.equal(read[name], t) for name, t in state.items())
    assert torch.equal(_read(_archive(_tensor()), tmp_path)["w"], ALIVE)


@pytest.mark.parametrize("container", [_archive, _stream, bytes])
def test_no_payload_is_run(tmp_path: Path, container: Callable[[bytes], bytes]) -> None:
    for name, payload in _payloads(tmp_path / "ran").items():
        with pytest.raises(LitebertError, match=r"LB-73[01]"):
            _read(container(payload), tmp_path)
        assert not (tmp_path / "ran").exists(), name


def test_the_payloads_would_run(tmp_path: Path) -> None:
    for name, payload in _payloads(tmp_path / "ran").items():
        pickle.loads(payload)
        assert (tmp_path / "ran").exists(), name
        (tmp_path / "ran").unlink()


WHOLE = _archive(_tensor())
REFUSED = {
    "not a dictionary": _archive(_pickled(["w"])),
    "more than tensors": _archive(_pickled({"epoch": 3})),
    "a number as a name": _archive(_tensor().replace(_pickled("w")[2:-1], b"K\x01", 1)),
    "no stop": _archive(b"\x80\x02}"),
    "a text of 2^63 bytes": _archive(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."),
    "many lists": _archive(b"\x80\x02" + b"]" * 250_000 + b"."),
    "a size of 2^63": _archive(_tensor(size=(1 << 63,))),
    "sizes whose product is huge": _archive(_tensor(size=(1 << 40, 1 << 40), stride=(0, 0))),
    "one number as 2^50": _archive(_tensor(size=(1 << 50,), stride=(0,))),
    "a million numbers in the place of two": _archive(_tensor(size=(1 << 20,))),
    "a negative size": _archive(_tensor(size=(-1,))),
    "past the end": _archive(_tensor(offset=1)),
    "a storage of 2^62 numbers": _archive(_tensor(stored=1 << 62)),
    "nothing": b"",
    "a beginning": b"PK\x03\x04",
    "no such format": b"no such format",
    "a bomb": _archive(_tensor(), compression=zipfile.ZIP_DEFLATED, bomb=bytes(64 << 20)),
    "a short storage": _archive(_tensor(), **{"data/0": b"1"}),
    "another storage": WHOLE.replace(b"data/0", b"data/1"),
    "changed numbers": WHOLE.replace(ALIVE.numpy().tobytes(), b"\x07" * 8),
    **{f"{magic!r}, then 4 GB of zeros": magic for magic in (b"PK\x03\x04", b"\x80\x02", b"\x80\x02]")},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_state_dict_or_damaged_is_refused_in_little_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(REFUSED[name])
    if "4 GB" in name:
        os.truncate(path, 4 << 30)  # sparse: it takes no room
    with memory_below(64 << 20), pytest.raises(LitebertError, match=r"LB-73[01]"):
        read_torch_file(path)


@settings(deadline=None, max_examples=150)
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4),
    is_archive=st.booleans(),
)
def test_changed_bytes_give_the_tensors_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], is_archive: bool
) -> None:
    data = bytearray(_saved({"w": ALIVE}, is_archive=is_archive))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        read = _read(bytes(data), tmp_path_factory.getbasetemp())
    except LitebertError:
        return
    if is_archive:  # the older stream has no checksums
        assert all(torch.equal(tensor, ALIVE) for tensor in read.values())
