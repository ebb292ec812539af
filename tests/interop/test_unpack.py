"""Archives of strangers: plain files inside one folder, within bounds, or nothing."""

import contextlib
import gzip
import io
import os
import tarfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import DamagedError, LitebertError
from litebert.interop import unpack as module
from litebert.interop.unpack import is_archive, unpack

Member = tuple[tarfile.TarInfo, bytes]


def _file(name: str, data: bytes = b"x") -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, data


def _special(name: str, kind: bytes, target: str = "") -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def _archive(path: Path, *members: Member, mode: str = "w:gz", format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, mode, format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


def _found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_arrive_whole(tmp_path: Path, mode: str, format: int) -> None:
    long_name = "folder/" * 10 + "n" * 150
    contents = {"a/b": os.urandom(70_000), "./c": b"", "wörter.txt": "ß".encode(), "d": b"1" * 512}
    if format != tarfile.USTAR_FORMAT:
        contents[long_name] = b"long"
    folder = _special("a", tarfile.DIRTYPE)
    members = [_file(name, data) for name, data in contents.items()]
    path = _archive(tmp_path / "x.tar", folder, *members, mode=mode, format=format)
    assert is_archive(path)
    unpack(path, tmp_path / "out")
    expected = {name.removeprefix("./"): data for name, data in contents.items()}
    assert _found(tmp_path / "out") == expected


HOSTILE_NAMES = [
    "../out2/x",
    "a/../../x",
    "..",
    "/etc/litebert",
    "//server/x",
    "a\\..\\..\\x",
    "C:\\x",
    "C:/x",
    "a/C:x",
    "．．/x",  # full-width dots, which some file systems fold into plain ones
    "n" * 250,
    "d/" * 40 + "x",
    ".",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    path = _archive(tmp_path / "x.tgz", _file("good"), _file(name), format=tarfile.GNU_FORMAT)
    with pytest.raises((LitebertError, DamagedError), match=r"LB-70[02]"):
        unpack(path, tmp_path / "in" / "out")
    assert set(_found(tmp_path)) <= {"x.tgz", "in/out/good", "in/out/a"}


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "a\x00b"])
def test_a_name_in_an_extended_header_is_looked_at_too(tmp_path: Path, name: str) -> None:
    info, data = _file("harmless")
    info.pax_headers = {"path": name}
    path = _archive(tmp_path / "x.tgz", (info, data))
    with pytest.raises(LitebertError, match="LB-700"):
        unpack(path, tmp_path / "out")
    assert set(_found(tmp_path)) == {"x.tgz"}


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"Z"],
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    member = _special("link", kind, "../../etc")
    path = _archive(tmp_path / "x.tar", member, _file("link/x"), mode="w", format=tarfile.GNU_FORMAT)
    with pytest.raises(LitebertError, match="LB-700"):
        unpack(path, tmp_path / "out")
    assert _found(tmp_path / "out") == {}


@pytest.mark.parametrize("names", [("a", "a"), ("a", "./a"), ("a", "a/b"), ("a/b", "a")])
def test_a_name_may_not_come_twice(tmp_path: Path, names: tuple[str, str]) -> None:
    path = _archive(tmp_path / "x.tgz", *(_file(name) for name in names))
    with pytest.raises(LitebertError, match="LB-700"):
        unpack(path, tmp_path / "out")


def test_a_bomb_stops_at_a_hundred_times_its_size(tmp_path: Path) -> None:
    path = _archive(tmp_path / "x.tgz", _file("zeros", bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(LitebertError, match=r"LB-701[\s\S]*100 times"):
            unpack(path, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert _found(tmp_path / "out") == {}


def test_zeros_after_the_end_are_bounded_too(tmp_path: Path) -> None:
    plain = _archive(tmp_path / "x.tar", _file("a"), mode="w").read_bytes()
    (tmp_path / "x.tgz").write_bytes(gzip.compress(plain + bytes(64 << 20)))
    with pytest.raises(LitebertError, match="LB-701"):
        unpack(tmp_path / "x.tgz", tmp_path / "out")


def test_too_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 20)
    folders = [_special(f"d{number}", tarfile.DIRTYPE) for number in range(20)]
    unpack(_archive(tmp_path / "most.tgz", *folders), tmp_path / "out")
    path = _archive(tmp_path / "more.tgz", *folders, _special("last", tarfile.DIRTYPE))
    with pytest.raises(LitebertError, match=r"LB-701[\s\S]*more than 20 entries"):
        unpack(path, tmp_path / "out")


def test_more_than_the_cap_is_refused_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 40_000)
    unpack(_archive(tmp_path / "x.tar", _file("a", bytes(9_000)), mode="w"), tmp_path / "out")
    files = [_file(name, bytes(9_000)) for name in "abcde"]
    with pytest.raises(LitebertError, match="LB-701"):
        unpack(_archive(tmp_path / "y.tar", *files, mode="w"), tmp_path / "out2")
    assert set(_found(tmp_path / "out2")) == set("abcd")


def _lying(change: Callable[[tarfile.TarInfo], None], after: bytes = b"") -> bytes:
    info, _ = _file("x")
    change(info)
    return info.tobuf(tarfile.GNU_FORMAT) + after + bytes(1024)


def _sized(size: int, kind: bytes = tarfile.REGTYPE) -> Callable[[tarfile.TarInfo], None]:
    def change(info: tarfile.TarInfo) -> None:
        info.size, info.type = size, kind

    return change


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_lying(_sized(1 << 62)), "LB-701"),
        (_lying(_sized(1 << 34)), "LB-701"),
        (_lying(_sized(-5)), "LB-701"),
        (_lying(_sized(1 << 33, tarfile.GNUTYPE_LONGNAME)), "LB-701"),
        (_lying(_sized(1 << 33, tarfile.XHDTYPE)), "LB-701"),
        (_lying(_sized(600), b"short"), "LB-702"),
        (_lying(_sized(20, tarfile.XHDTYPE), b"20 size=99999999999\n".ljust(512, b"\0")), "LB-700"),
        (_lying(_sized(27, tarfile.XHDTYPE), b"27 GNU.sparse.realsize=999\n".ljust(512, b"\0")), "LB-700"),
        (_lying(_sized(0))[:512], "LB-702"),
        (_lying(_sized(0))[:100], "LB-702"),
        (b"\x1f\x8bnonsense", "LB-702"),
        (b"", "LB-702"),
    ],
)
def test_headers_that_lie_are_refused_without_reading_what_they_promise(tmp_path: Path, data: bytes, code: str) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(LitebertError, match=code):
        unpack(tmp_path / "x.tar", tmp_path / "out")
    assert set(_found(tmp_path)) <= {"x.tar", "out/x"}


WHOLE = gzip.compress(b"".join([_file("a")[0].tobuf(), b"x".ljust(512, b"\0"), bytes(1024)]), mtime=0)


@given(st.integers(0, len(WHOLE) - 1))
@settings(max_examples=60, deadline=None)
def test_an_archive_cut_off_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (folder / "x.tgz").write_bytes(WHOLE[:length])
    with pytest.raises(DamagedError, match="LB-702"):
        unpack(folder / "x.tgz", folder / "out")


@given(st.binary(max_size=2_000), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_unpacked_inside_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, is_packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "x").write_bytes(gzip.compress(data) if is_packed else data)
    with contextlib.suppress(LitebertError):
        unpack(folder / "x", folder / "out")
    assert {path.name for path in folder.iterdir()} <= {"x", "out"}


def test_many_empty_files_are_refused_at_once(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "many.tar.gz", *(_file(f"{n}", b"") for n in range(20_000)))
    assert archive.stat().st_size < 500_000
    begin = time.process_time()
    with pytest.raises(LitebertError, match="LB-701"):
        unpack(archive, tmp_path / "into")
    assert time.process_time() - begin < 1


def test_control_names_that_nobody_looks_at_are_written_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.interop.unpack._inside", lambda name, _: Path(name))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_names_that_lead_elsewhere_are_refused(tmp_path, "../escaped")
    assert (tmp_path / "in" / "escaped").exists()


def test_control_without_a_limit_a_bomb_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RATIO", 100_000)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_bomb_stops_at_a_hundred_times_its_size(tmp_path)
