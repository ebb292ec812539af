"""Old files of torch.save: whatever is in them besides tensors is never run (tensors: test_huggingface.py)."""

import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import DamagedError
from litebert.interop.huggingface import read_torch_file
from tests.memory import memory_below

BASE = torch.arange(12.0).reshape(3, 4)


def _saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _archive(pickled: bytes) -> bytes:
    """Put any pickle where torch.save puts the state dict."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", pickled)
        archive.writestr("model/version", "3\n")
    return file.getvalue()


def _stream(pickled: bytes) -> bytes:
    """Put any pickle where torch before 1.6 put the state dict."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    head = (pickle.dumps(each, protocol=2) for each in (0x1950A86A20F9469CFC6C, 1001, system))
    return b"".join(head) + pickled + pickle.dumps([], protocol=2)


class Payload:
    """An object whose pickle calls something."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call[0], self.call[1:]


def _payloads(touched: Path) -> dict[str, bytes]:
    """Return pickles that create a file when they are run."""
    shell, code = f"touch {touched}", f"__import__('pathlib').Path({str(touched)!r}).touch()"
    run = pickle.dumps(Payload(os.system, shell), protocol=2)
    return {
        "reduce": run,
        "stack global": pickle.dumps(Payload(os.system, shell), protocol=4),
        "eval": pickle.dumps({"w": Payload(eval, code)}, protocol=2),
        "inst": b"(S'%b'\nios\nsystem\n." % shell.encode(),
        "obj": b"(cos\nsystem\nS'%b'\no." % shell.encode(),
        "hidden below": run[:-1] + b"0}.",
    }


def _read(data: bytes, folder: Path) -> dict[str, torch.Tensor]:
    path = folder / "pytorch_model.bin"
    path.write_bytes(data)
    return read_torch_file(path)


@pytest.mark.parametrize("container", [_archive, _stream, bytes])
def test_no_payload_is_run(tmp_path: Path, container: Callable[[bytes], bytes]) -> None:
    for name, payload in _payloads(tmp_path / "ran").items():
        with pytest.raises(DamagedError, match="LB-731"):
            _read(container(payload), tmp_path)
        assert not (tmp_path / "ran").exists(), name


def test_the_payloads_would_run(tmp_path: Path) -> None:
    for name, payload in _payloads(tmp_path / "ran").items():
        pickle.loads(payload)
        assert (tmp_path / "ran").exists(), name
        (tmp_path / "ran").unlink()


def _packed(data: bytes) -> bytes:
    """Compress the entries of an archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in old.infolist():
            archive.writestr(entry.filename, old.read(entry))
    return file.getvalue()


REFUSED = {
    "not a dictionary": _saved(["w"]),
    "no tensor": _saved({}),
    "more than tensors": _saved({"w": BASE, "epoch": 3}),
    "one number in 2^50 places": _saved({"w": torch.zeros(1).expand(1 << 50)}),
    "on no device": _saved({"w": torch.empty(1 << 40, device="meta")}),
    "sparse": _saved({"w": BASE.to_sparse()}),
    "a bomb": _packed(_saved({"w": torch.zeros(16 << 20)})),
    "many lists": _archive(b"\x80\x02" + b"]" * 250_000 + b"."),
    "nothing": b"",
    "another format": b"no such format",
    **{f"{start!r}, then 4 GB of zeros": start for start in (b"PK\x03\x04", b"\x80\x02", b"\x80\x02]")},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_state_dict_is_refused_in_little_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(REFUSED[name])
    if "4 GB" in name:
        os.truncate(path, 4 << 30)  # sparse: it takes no room
    with memory_below(64 << 20), pytest.raises(DamagedError, match="LB-731"):
        read_torch_file(path)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_the_tensors_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(_saved({"w": BASE}))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        read = _read(bytes(data), tmp_path_factory.getbasetemp())
    except DamagedError:
        return
    assert all(torch.equal(tensor, BASE) for tensor in read.values())
