"""Inputs: looked up before work begins, decompressed, cut into lines."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from litebert.corpus.text import TextSettings, read_passages
from litebert.errors import DamagedError, LitebertError
from litebert.reading import source as sources
from litebert.reading.source import Source, find_file, find_text, find_texts, read_lines

Write = Callable[[str, bytes | str], Source]
PACK = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
COMPRESSED = pytest.mark.parametrize("suffix", PACK)
MANY = b"".join(b"line %d of many\n" % number for number in range(20_000))


def test_lines_are_numbered_as_an_editor_does(source: Write) -> None:
    for content, lines in {
        b"one\ntwo\n": ["one", "two"],
        b"one\ntwo": ["one", "two"],
        b"\xef\xbb\xbfone\n": ["one"],
        b"one\r\n\r\ntwo\r\n": ["one", "", "two"],
        "a\u2028b\x85c\x0bd\n".encode(): ["a\u2028b\x85c\x0bd"],
        b"\n\n\n": ["", "", ""],
    }.items():
        assert list(read_lines(source("a.txt", content))) == list(enumerate(lines, 1))


@COMPRESSED
def test_files_may_be_compressed_in_one_member_or_several(source: Write, suffix: str) -> None:
    read = list(read_lines(source(f"a.txt{suffix}", PACK[suffix](MANY))))
    assert read == list(enumerate(MANY.decode().splitlines(), 1))
    file = source(f"b.txt{suffix}", PACK[suffix](b"one\ntw") + PACK[suffix](b"o\nthree\n"))
    assert [line for _, line in read_lines(file)] == ["one", "two", "three"]


@pytest.mark.parametrize("piece_bytes", [1 << 18, 1_000])
def test_bytes_that_are_not_utf8_are_named_by_line(
    source: Write, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(sources, "PIECE_BYTES", piece_bytes)
    file = source("latin.txt", MANY + b"caf\xe9 noir\n" + MANY)
    with pytest.raises(LitebertError, match="line 20,001: not UTF-8") as caught:
        list(read_lines(file))
    assert caught.value.received == "byte 0xe9, byte 4 of the line"
    assert "iconv -f WINDOWS-1252" in caught.value.next
    with pytest.raises(LitebertError, match="not UTF-8") as caught:
        list(read_lines(source("wide.txt", "one\n".encode("utf-16"))))
    assert "iconv -f UTF-16" in caught.value.next


@COMPRESSED
def test_line_of_a_gigabyte_is_refused_in_a_hundred_megabytes(write: Callable[[str, bytes], Path], suffix: str) -> None:
    path = write(f"long.txt{suffix}", PACK[suffix](b"x" * (16 << 20)) * 64)
    measured = subprocess.run([sys.executable, "-c", _MEASURE, str(path)], capture_output=True, text=True, check=True)
    error, grown = measured.stdout.strip().rsplit("\n", 1)
    assert "too long" in error
    assert int(grown) < 100 << 20


_MEASURE = """
import re, sys
from pathlib import Path
import pyarrow
from litebert.reading.source import find_text, read_lines

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

before = peak()
try:
    list(read_lines(find_text(sys.argv[1])))
except Exception as error:
    print(error)
print(peak() - before)
"""


@COMPRESSED
def test_file_that_is_damaged_cut_off_or_not_compressed_is_refused(source: Write, suffix: str) -> None:
    packed = PACK[suffix](MANY)
    flipped = bytearray(gzip.compress(MANY))
    flipped[len(flipped) // 2] ^= 0x10
    for share in (0.05, 0.5, 0.99):
        with pytest.raises(DamagedError, match="damaged or cut off after line"):
            list(read_lines(source(f"cut.txt{suffix}", packed[: int(share * len(packed))])))
    with pytest.raises(DamagedError, match="damaged or cut off after line"):
        list(read_lines(source("flipped.txt.gz", bytes(flipped))))
    with pytest.raises(DamagedError, match="after line 0"):
        list(read_lines(source(f"plain.txt{suffix}", b"not compressed\n")))


@COMPRESSED
def test_bomb_is_stopped(source: Write, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(sources, "BOMB_BYTES", 1 << 20)
    file = source(f"bomb.txt{suffix}", PACK[suffix](b"\n" * (8 << 20)))
    with pytest.raises(DamagedError, match="far too large when decompressed"):
        list(read_lines(file))


def test_control_without_a_cap_the_long_line_is_read(source: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = source("long.txt", b"short\nshort\n" + b"x" * (3 << 20))
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(LitebertError, match="line 3: too long"):
        list(read_lines(file))
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1 << 40)
    assert [len(line) for _, line in read_lines(file)] == [5, 5, 3 << 20]


REFUSED = {
    **dict.fromkeys(("a.csv", "a", "a.gz", "a.parquet.gz", "a.txt.bz2"), "LB-304"),
    "a.json": r"LB-304(?s:.*)did you mean \.jsonl\?",
    **dict.fromkeys(("nowhere.txt", "two\nlines.txt", "a\0b.txt"), "cannot be read"),
    "folder.txt": "(?s:.*)it is a folder(?s:.*)name the files",
    "empty.txt": "has no text",
}


def test_what_is_no_text_is_refused(write: Callable[[str, bytes | str], Path], tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    write("empty.txt", "")
    for name, told in REFUSED.items():
        if told.startswith("LB-304"):
            write(name, "{}")
        with pytest.raises(LitebertError, match=told):
            find_text(str(tmp_path / name))
    with pytest.raises(LitebertError, match="there is no input"):
        find_texts([])
    path = write("gone.txt", b"text")
    file = find_text(str(path))
    path.unlink()
    with pytest.raises(LitebertError, match="cannot be read"):
        list(read_lines(file))


MISSING = [("a.txt.zst", "pyarrow", "data"), ("a.parquet", "pyarrow", "data"), ("s3://a/b.txt", "obstore", "cluster")]


@pytest.mark.parametrize(("name", "package", "extra"), MISSING)
def test_missing_package_names_its_extra(
    write: Callable[[str, bytes | str], Path], monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    for module in (package, *(name for name in sys.modules if name.startswith(f"{package}."))):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LitebertError, match=package) as caught:
        list(read_passages(find_text(name if "://" in name else str(write(name, b"x"))), TextSettings()))
    assert caught.value.next == f"pip install 'litebert[{extra}]'"


def test_url_is_read_like_a_file(write: Callable[[str, bytes], Path]) -> None:
    found = find_text(write("a.txt", b"One.\n\nTwo.\n").as_uri())
    assert found.size == 11
    assert [passage.text for passage in read_passages(found, TextSettings(sentences="line"))] == ["One.", "Two."]
    for url in ("file:///nowhere.txt", "nosuchscheme://bucket/a.txt"):
        with pytest.raises(LitebertError, match="cannot be read"):
            find_text(url)


def test_folder_in_the_place_of_a_named_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.json").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("", ".", "..", "folder.json"):
        with pytest.raises(LitebertError, match=r"LB-303[\s\S]*it is a folder"):
            find_file(Path(name))
