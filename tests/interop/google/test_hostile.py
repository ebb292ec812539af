"""Damaged and hostile checkpoints and archives: one clear error, in bounded time and
memory, nothing left.
"""

import gzip
import io
import json
import os
import shutil
import struct
import tarfile
from contextlib import nullcontext, suppress
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import DamagedError, LitebertError
from litebert.interop import archive, bundle
from litebert.interop.bundle import (
    Entry,
    Header,
    masked_crc32c,
    read_bundle,
    read_table,
)
from litebert.interop.google import import_checkpoint
from tests.interop.google.tables import table_bytes
from tests.memory import memory_below
from tests.waiting import ends_quickly

FIXTURE = Path(__file__).parent / "fixtures" / "pretraining"
NAME = "model.ckpt-best"
INDEX = (FIXTURE / f"{NAME}.index").read_bytes()
DATA = [(FIXTURE / f"{NAME}.data-0000{n}-of-00003").read_bytes() for n in range(3)]
EXPECTED = {
    name: read_bundle(FIXTURE / NAME).read(name)
    for name in read_bundle(FIXTURE / NAME).entries
}


def _small(*shape: int, **fields: object) -> bytes:
    """Return the entry of a variable of 2 x 3 floats, or a false one."""
    axes = {"dim": [{"size": size} for size in shape or (2, 3)]}
    return Entry(**{"dtype": 1, "shape": axes, "size": 24} | fields).SerializeToString()


def _copy(folder: Path, *, index: bytes = INDEX, data: list[bytes] = DATA) -> Path:
    """Write a copy of the checkpoint with other bytes; return its prefix."""
    folder.mkdir(exist_ok=True)
    shutil.copy(FIXTURE / "albert_config.json", folder)
    (folder / f"{NAME}.index").write_bytes(index)
    for number, part in enumerate(data):
        (folder / f"{NAME}.data-0000{number}-of-00003").write_bytes(part)
    return folder / NAME


@pytest.mark.parametrize("part", range(0, 32, 5))
def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path, part: int) -> None:
    short = _copy(tmp_path / "index", index=INDEX[: len(INDEX) * part // 32])
    with pytest.raises(DamagedError, match="LB-703"):
        import_checkpoint(short, tmp_path / "model")
    cut = [DATA[0], DATA[1][: len(DATA[1]) * part // 32], DATA[2]]
    with pytest.raises(
        DamagedError, match=r"LB-704.*data-00001-of-00003 is missing, cut off"
    ):
        import_checkpoint(_copy(tmp_path / "data", data=cut), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@given(st.integers(0, 8 * len(INDEX) - 1), st.integers(0, 8 * len(DATA[1]) - 1))
@settings(max_examples=100, deadline=None)
def test_a_flipped_bit_is_found_or_changes_nothing(
    tmp_path_factory, in_index: int, in_data: int
) -> None:
    changed = [bytearray(INDEX), bytearray(DATA[1])]
    for data, bit in zip(changed, (in_index, in_data), strict=True):
        data[bit // 8] ^= 1 << bit % 8
    folder = tmp_path_factory.getbasetemp() / "flip"
    with suppress(DamagedError):
        bundle = read_bundle(_copy(folder, index=bytes(changed[0])))
        assert all(
            torch.equal(bundle.read(name), tensor) for name, tensor in EXPECTED.items()
        )
    bundle = read_bundle(_copy(folder, data=[DATA[0], bytes(changed[1]), DATA[2]]))
    with pytest.raises(DamagedError, match="LB-704"):
        [bundle.read(name) for name in EXPECTED]


# --- impossible entries and headers ---------------------------------------------------


def _index(*entries: bytes, **header: object) -> list[tuple[bytes, bytes]]:
    """Return the rows of an index: the header, and entries under the name a."""
    return [
        (b"", Header(**header or {"num_shards": 1}).SerializeToString()),
        *((b"a", entry) for entry in entries),
    ]


IMPOSSIBLE = {
    "2^62 bytes": _index(_small(size=1 << 62)),
    "a size that is not its shape's": _index(_small(size=20)),
    "axes whose product is 2^80": _index(_small(1 << 40, 1 << 40)),
    "an axis of -1": _index(_small(-1)),
    "nine axes": _index(_small(*[1] * 9, size=4)),
    "a data file that is not there": _index(_small(shard_id=3)),
    "a place at -1": _index(_small(offset=-1)),
    "a group without end": _index(b"\x0b"),
    "no data files": _index(_small(), endianness=0),
    "10^9 data files": _index(_small(), num_shards=10**9),
    "big-endian": _index(_small(), num_shards=1, endianness=1),
    "of the future": _index(
        _small(), num_shards=1, version={"producer": 9, "min_consumer": 9}
    ),
    "nothing": [],
    "no header": [(b"a", _small())],
    "a name that is no text": [*_index(), (b"\xff", b"")],
    "too many": [
        *_index(),
        *((f"{number:06}".encode(), _small()) for number in range(10_001)),
    ],
    **{
        f"outside: at {offset}": _index(_small(offset=offset))
        for offset in (1, 1 << 40, (1 << 63) - 24)
    },
    "outside: a giant": _index(_small(1 << 20, 1 << 20, size=4 << 40)),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_entries_are_refused_before_anything_is_allocated(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "x.index").write_bytes(table_bytes(IMPOSSIBLE[name]))
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(24))
    limit = 16 << 20 if name == "too many" else 1 << 20
    code = "LB-704" if "outside" in name else "LB-703"
    with memory_below(limit), pytest.raises(DamagedError, match=code):
        read_bundle(tmp_path / "x").read("a")


def test_absurd_numbers_of_layers_are_refused_quickly(tmp_path: Path) -> None:
    last = b"bert/encoder/transformer/group_1023/inner_group_63/LayerNorm/beta"
    entries = [(b"bert/embeddings/word_embeddings", _small()), (last, _small())]
    (tmp_path / "x.ckpt.index").write_bytes(table_bytes([*_index(), *entries]))
    layers = {
        "inner_group_num": 64,
        "num_hidden_groups": 1024,
        "num_hidden_layers": 1024,
    }
    table = json.loads((FIXTURE / "albert_config.json").read_text()) | layers
    (tmp_path / "albert_config.json").write_text(json.dumps(table))
    with pytest.raises(LitebertError, match="LB-721"):
        import_checkpoint(tmp_path / "x.ckpt", tmp_path / "model")
    os.truncate(tmp_path / "x.ckpt.index", 17 << 20)
    with pytest.raises(LitebertError, match="LB-004"):
        read_bundle(tmp_path / "x.ckpt")


@given(
    st.lists(
        st.tuples(st.integers(0, len(INDEX) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_with_valid_checksums_are_refused_or_give_possible_entries(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(INDEX)
    for place, value in changes:
        data[place] = value
    prefix = _copy(tmp_path_factory.getbasetemp() / "table", index=bytes(data))
    with mock.patch.object(bundle, "masked_crc32c", lambda _: mock.ANY):
        try:
            checkpoint = read_bundle(prefix)
        except DamagedError as error:
            assert error.code == "LB-703"
            return
    for name, entry in checkpoint.entries.items():
        assert 0 <= entry.shard_id < checkpoint.num_shards, name
        assert min(entry.offset, entry.size, *checkpoint.shape(name)) >= 0, name


# listed a million times, it would take hours
def test_a_block_that_an_index_lists_twice_is_refused() -> None:
    def block(*values: bytes) -> bytes:  # under the keys 0, 1, ...
        rows = b"".join(
            b"\0\1" + bytes([len(value), key]) + value
            for key, value in enumerate(values)
        )
        stored = rows + struct.pack("<II", 0, 1) + b"\0"  # one restart, no compression
        return stored + struct.pack("<I", masked_crc32c(stored))

    data = block(b"x")
    place = bytes([0, len(block(b"x")) - 5])
    for places, said in (([place], "nothing"), ([place, place], "overlap")):
        index = block(*places)
        footer = (b"\0\0" + bytes([len(data), len(index) - 5])).ljust(
            40, b"\0"
        ) + INDEX[-8:]
        with (
            nullcontext()
            if said == "nothing"
            else pytest.raises(ValueError, match=said)
        ):
            assert list(read_table(data + index + footer)) == [(b"\0", b"x")]


# --- archives of strangers: plain files inside one folder, within bounds, or nothing

Member = tuple[tarfile.TarInfo, bytes]


def _file(name: str, data: bytes = b"x", **fields: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def _archive(*members: Member, mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def assert_refused(folder: Path, archive: bytes, code: str) -> None:
    """Import an archive; require that it is refused in little memory and that no file
    is written anywhere.
    """
    path = folder / "in" / "x.tgz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(archive)
    before = set(folder.rglob("*"))
    with memory_below(8 << 20), pytest.raises(LitebertError, match=code):
        import_checkpoint(path, path.with_name("model"))
    assert set(folder.rglob("*")) == before


ELSEWHERE = ("../out2/x", "a/../../x", "..", "../../x", "a/../../../model")
FOREIGN = (
    "/litebert-escaped",
    "//litebert-escaped",
    "C:\\x",
    "a\\..\\..\\x",
    "．．/x",
    "a\0b",
)
SPECIAL = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, b"6")
STRANGE = [
    *(([_file("good"), _file(name)], "LB-701") for name in ELSEWHERE),
    *(
        ([_file("harmless", pax_headers={"path": name})], "LB-701")
        for name in ELSEWHERE
    ),
    # Names of other systems stay inside or are refused; what is inside is no
    # checkpoint.
    *(
        ([_file("harmless", pax_headers={"path": name})], "LB-70[12]|LB-718")
        for name in FOREIGN
    ),
    *(
        (
            [
                _file("good"),
                _file("link", b"", type=kind, linkname=target),
                _file("link/x"),
            ],
            "LB-701",
        )
        for kind in SPECIAL
        for target in ("../../etc", "good")
    ),
    # Names that no folder can hold
    *(
        ([_file(name) for name in names], "LB-255")
        for names in (("a", "a/b"), ("a/b", "a"), ("n" * 300, "b"))
    ),
]


@pytest.mark.parametrize(("members", "code"), STRANGE, ids=range(len(STRANGE)))
def test_paths_to_elsewhere_and_special_files_are_refused(
    tmp_path: Path, members: list[Member], code: str
) -> None:
    assert_refused(tmp_path, _archive(*members), code)
    assert not Path("/litebert-escaped").exists()


def _bomb() -> bytes:
    return _archive(_file("zeros", bytes(64 << 20)))


def test_a_bomb_stops_at_a_hundred_times_its_size(tmp_path: Path) -> None:
    assert_refused(tmp_path, _bomb(), r"LB-701[\s\S]*100 times")
    zeros_after_the_end = _archive(_file("a"), mode="w") + bytes(64 << 20)
    assert_refused(tmp_path, gzip.compress(zeros_after_the_end), "LB-701")


DEEP = ("/".join(["a"] * 20_000), "a/" * 20_000, "a/" * 33 + "b")


@pytest.mark.parametrize("name", DEEP, ids=len)
def test_a_name_of_thousands_of_folders_is_refused(tmp_path: Path, name: str) -> None:
    for kind in (tarfile.REGTYPE, tarfile.DIRTYPE):
        members = [_file("good"), _file(name, b"", type=kind)]
        assert_refused(tmp_path, _archive(*members), "LB-701")


def test_many_empty_files_are_refused_at_once(tmp_path: Path) -> None:
    archive = _archive(*(_file(f"{n}", b"") for n in range(20_000)))
    assert len(archive) < 500_000
    with ends_quickly():
        assert_refused(tmp_path, archive, r"LB-701[\s\S]*more than 1,000 entries")


def _lying(size: int, kind: bytes = tarfile.REGTYPE, after: bytes = b"") -> bytes:
    info, _ = _file("x", type=kind)
    info.size = size
    after = (
        after
        if kind == tarfile.REGTYPE or not after
        else after.ljust(512, b"\0") + _file("x")[0].tobuf()
    )
    return info.tobuf(tarfile.GNU_FORMAT) + after + bytes(1024)


LIES = {
    **{f"{size} bytes": _lying(size) for size in (1 << 62, 1 << 34, -5)},
    **{
        f"a name of type {kind!r}": _lying(1 << 33, kind)
        for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE)
    },
    "cut data": _lying(600, after=b"short"),
    "a size in a header": _lying(20, tarfile.XHDTYPE, b"20 size=99999999999\n"),
    "sparse": _lying(27, tarfile.XHDTYPE, b"27 GNU.sparse.realsize=999\n"),
    "names of names": _lying(1, tarfile.GNUTYPE_LONGNAME)[:512] * 20_000,
    "no end": _lying(0)[:512],
    "cut header": _lying(0)[:300],
}


@pytest.mark.parametrize("name", [*LIES, "no gzip"])
def test_headers_that_lie_are_refused_without_reading_what_they_promise(
    tmp_path: Path, name: str
) -> None:
    archive = gzip.compress(LIES[name]) if name in LIES else b"\x1f\x8bnonsense"
    assert_refused(tmp_path, archive, "LB-70[12]|LB-718")


@given(st.binary(max_size=2_000), st.integers(2, 60))
@settings(max_examples=60, deadline=None)
def test_random_bytes_and_truncated_archives_are_refused(
    tmp_path_factory, content: bytes, length: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    entry = table_bytes(_index(content[:80]))
    whole = _archive(_file("a"))
    files = {
        "plain": content,
        "packed": gzip.compress(content),
        "cut": whole[:length],
        "x.index": entry,
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
        with pytest.raises(LitebertError, match="LB-702" if name == "cut" else "LB-7"):
            import_checkpoint(folder / name, folder / "out")
    assert {path.name for path in folder.iterdir()} == files.keys()


def test_control_unchecked_names_are_written_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tarfile, "data_filter", tarfile.fully_trusted_filter)
    monkeypatch.setitem(tarfile._NAMED_FILTERS, "data", tarfile.fully_trusted_filter)
    (tmp_path / "out").mkdir()
    (tmp_path / "x.tgz").write_bytes(_archive(_file("../escaped")))
    archive.unpack(tmp_path / "x.tgz", tmp_path / "out")
    assert (tmp_path / "escaped").exists()


def test_control_without_a_limit_a_bomb_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_RATIO", 100_000)
    # of its memory: it is unpacked, and holds no checkpoint
    with pytest.raises(AssertionError):
        assert_refused(tmp_path, _bomb(), "LB-718")
