"""Damaged and hostile checkpoints: one clear error, in bounded time and memory, nothing left."""

import math
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import DamagedError, LitebertError
from litebert.interop.google import import_checkpoint
from litebert.interop.google.bundle import read_bundle
from litebert.interop.google.bundle_writer import Variable, table_bytes, write_bundle
from litebert.interop.google.entry import Entry, entry_bytes, header_bytes
from litebert.tokenizer.wire import to_varint

FIXTURE = Path(__file__).parent / "fixtures" / "pretraining"
NAME = "model.ckpt-best"
INDEX = (FIXTURE / f"{NAME}.index").read_bytes()
DATA = [(FIXTURE / f"{NAME}.data-0000{n}-of-00003").read_bytes() for n in range(3)]
EXPECTED = {name: read_bundle(FIXTURE / NAME).read(name) for name in read_bundle(FIXTURE / NAME).entries}
SMALL = Entry("float32", (2, 3), 0, 0, 24, 0)


def _copy(folder: Path, *, index: bytes = INDEX, data: list[bytes] = DATA) -> Path:
    """Write a copy of the checkpoint with other bytes; return its prefix."""
    shutil.copy(FIXTURE / "albert_config.json", folder)
    (folder / f"{NAME}.index").write_bytes(index)
    for number, each in enumerate(data):
        (folder / f"{NAME}.data-0000{number}-of-00003").write_bytes(each)
    return folder / NAME


def _read_all(prefix: Path) -> None:
    """Read every variable; what is read must be what was written."""
    bundle = read_bundle(prefix)
    for name in bundle.entries:
        assert np.array_equal(bundle.read(name), EXPECTED[name]), name


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("part", range(32))
def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path, part: int) -> None:
    for name in ("index", "data"):
        (tmp_path / name).mkdir()
    short = _copy(tmp_path / "index", index=INDEX[: len(INDEX) * part // 32])
    with pytest.raises(DamagedError, match="LB-703"):
        import_checkpoint(short, tmp_path / "model")
    cut = [DATA[0], DATA[1][: len(DATA[1]) * part // 32], DATA[2]]
    with pytest.raises(DamagedError, match=r"LB-704.*data-00001-of-00003 is missing or cut off"):
        import_checkpoint(_copy(tmp_path / "data", data=cut), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@given(st.integers(0, 8 * len(INDEX) - 1))
@settings(max_examples=150, deadline=None)
def test_a_flipped_bit_of_the_index_is_found_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, bit: int
) -> None:
    prefix = _copy(tmp_path_factory.mktemp("flip"), index=_flipped(INDEX, bit))
    try:
        _read_all(prefix)
    except DamagedError:
        return


@given(st.integers(0, 2), st.integers(0, 8 * 12_000 - 1))
@settings(max_examples=100, deadline=None)
def test_a_flipped_bit_of_the_data_is_always_found(
    tmp_path_factory: pytest.TempPathFactory, shard: int, bit: int
) -> None:
    data = [_flipped(each, bit) if n == shard else each for n, each in enumerate(DATA)]
    prefix = _copy(tmp_path_factory.mktemp("flip"), data=data)
    with pytest.raises(DamagedError, match="LB-705"):
        _read_all(prefix)


@pytest.mark.parametrize("shard", range(3))
def test_a_missing_data_file_is_named(tmp_path: Path, shard: int) -> None:
    prefix = _copy(tmp_path)
    (tmp_path / f"{NAME}.data-0000{shard}-of-00003").unlink()
    with pytest.raises(DamagedError, match=rf"LB-704.*data-0000{shard}-of-00003"):
        import_checkpoint(prefix, tmp_path / "model")


def _changed(entry: Entry, **values: object) -> bytes:
    return entry_bytes(Entry(**{**vars(entry), **values}))


def _axes(*sizes: int) -> bytes:
    axes = b"".join(b"\x12" + to_varint(len(a := b"\x08" + to_varint(size))) + a for size in sizes)
    return b"\x08\x01\x12" + to_varint(len(axes)) + axes


IMPOSSIBLE = {
    "2^63 bytes": _changed(SMALL, size=1 << 63),
    "-1 bytes": _changed(SMALL, size=(1 << 64) - 1),
    "a size that is not its shape's": _changed(SMALL, size=20),
    "axes whose product is 2^80": _axes(1 << 40, 1 << 40) + b"\x28\x18",
    "an axis of -1": _axes((1 << 64) - 1) + b"\x28\x18",
    "nine axes": _axes(*[1] * 9) + b"\x28\x04",
    "a data file that is not there": _changed(SMALL, shard=3),
    "data file -1": _changed(SMALL, shard=(1 << 64) - 1),
    "a checksum as a number": b"\x08\x01\x30\x05",
    "a shape as a number": b"\x08\x01\x10\x05",
    "a group": b"\x0b\x0c",
    "a number without end": b"\x08" + b"\xff" * 11,
    "a string longer than the entry": b"\x12\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_entries_that_cannot_be_are_refused_before_anything_is_allocated(tmp_path: Path, name: str) -> None:
    index = table_bytes([(b"", header_bytes(1)), (b"a", IMPOSSIBLE[name])])
    (tmp_path / "x.index").write_bytes(index)
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(24))
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="LB-703"):
            read_bundle(tmp_path / "x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("offset", [1, 1 << 40, (1 << 63) - 1, (1 << 64) - 24])
def test_data_outside_its_file_is_refused(tmp_path: Path, offset: int) -> None:
    index = table_bytes([(b"", header_bytes(1)), (b"a", _changed(SMALL, offset=offset))])
    (tmp_path / "x.index").write_bytes(index)
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(24))
    with pytest.raises(DamagedError, match="LB-704"):
        read_bundle(tmp_path / "x").read("a")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (b"", "LB-703"),
        (b"\x08" + to_varint(10**9), "LB-703"),
        (b"\x08" + to_varint((1 << 64) - 1), "LB-703"),
        (b"\x08\x01\x10\x01\x1a\x02\x08\x01", "LB-707"),
        (b"\x08\x01\x1a\x04\x08\x09\x10\x09", "LB-707"),
    ],
)
def test_a_header_of_another_kind_is_refused(tmp_path: Path, header: bytes, code: str) -> None:
    (tmp_path / "x.index").write_bytes(table_bytes([(b"", header), (b"a", entry_bytes(SMALL))]))
    with pytest.raises(LitebertError, match=code):
        read_bundle(tmp_path / "x")


def test_a_table_without_header_or_with_strange_names_is_refused(tmp_path: Path) -> None:
    for entries in ([], [(b"a", entry_bytes(SMALL))], [(b"", header_bytes(1)), (b"\xff", b"")]):
        (tmp_path / "x.index").write_bytes(table_bytes(entries))
        with pytest.raises(DamagedError, match="LB-703"):
            read_bundle(tmp_path / "x")


def test_an_index_of_too_many_entries_or_bytes_is_refused(tmp_path: Path) -> None:
    many = [(f"{number:06}".encode(), entry_bytes(SMALL)) for number in range(10_001)]
    (tmp_path / "x.index").write_bytes(table_bytes([(b"", header_bytes(1)), *many]))
    with pytest.raises(DamagedError, match="LB-703"):
        read_bundle(tmp_path / "x")
    with (tmp_path / "x.index").open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(LitebertError, match="LB-003"):
        read_bundle(tmp_path / "x")


def test_absurd_numbers_of_layers_are_refused_quickly(tmp_path: Path) -> None:
    words = Variable("bert/embeddings/word_embeddings", np.zeros((40, 8), np.float32))
    last = "bert/encoder/transformer/group_1023/inner_group_63/LayerNorm/beta"
    write_bundle(tmp_path / "x.ckpt", [words, Variable(last, np.zeros(16, np.float32))])
    text = (FIXTURE / "albert_config.json").read_text().replace('inner_group_num": 1', 'inner_group_num": 64')
    text = text.replace('groups": 1', 'groups": 1024').replace('layers": 4', 'layers": 1024')
    (tmp_path / "albert_config.json").write_text(text)
    with pytest.raises(LitebertError, match="LB-720"):
        import_checkpoint(tmp_path / "x.ckpt", tmp_path / "model")


@pytest.mark.parametrize("shape", [(7, 16), (8,), (), (8, 2, 16), (16, 8)])
def test_a_word_table_and_a_map_that_do_not_multiply_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    old = FIXTURE.with_name("albert_zh")
    bundle = read_bundle(old / "albert_model.ckpt")
    values = {name: bundle.read(name) for name in bundle.entries}
    values["bert/embeddings/word_embeddings_2"] = np.zeros(shape, np.float32)
    write_bundle(tmp_path / "x.ckpt", [Variable(*each) for each in values.items()])
    with pytest.raises(DamagedError, match=r"LB-721[\s\S]*word_embeddings"):
        import_checkpoint(tmp_path / "x.ckpt", tmp_path / "model", config=old / "albert_config.json")


@pytest.mark.parametrize("tail", [b"\x3a\x00", b""])
def test_a_giant_that_is_only_announced_takes_no_memory(tmp_path: Path, tail: bytes) -> None:
    """Announce a network with E = H = 65,536: in slices that are not there, or in a short file."""
    real = FIXTURE.with_name("equal_sizes")
    entries = {}
    for name, entry in read_bundle(real / NAME).entries.items():
        shape = tuple(65_536 if size == 16 else size for size in entry.shape)
        size = entry.size if name == "global_step" else 4 * math.prod(shape)
        entries[name.encode()] = _changed(entry, shape=shape, size=size) + tail
    index = table_bytes([(b"", header_bytes(1)), *sorted(entries.items())])
    (tmp_path / "x.ckpt.index").write_bytes(index)
    (tmp_path / "x.ckpt.data-00000-of-00001").write_bytes(bytes(1_000))
    text = (real / "albert_config.json").read_text().replace('size": 16', 'size": 65536')
    (tmp_path / "albert_config.json").write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(LitebertError, match=r"LB-70[46]"):
            import_checkpoint(tmp_path / "x.ckpt", tmp_path / "model")
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_bytes_as_an_entry_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, entry: bytes) -> None:
    prefix = tmp_path_factory.getbasetemp() / "any"
    prefix.with_name("any.index").write_bytes(table_bytes([(b"", header_bytes(1)), (b"a", entry)]))
    prefix.with_name("any.data-00000-of-00001").write_bytes(bytes(64))
    try:
        values = read_bundle(prefix).read("a")
    except LitebertError:
        return
    assert values.size <= 64
