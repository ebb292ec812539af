"""Lines of text files: encoding, ends, length, damage."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from litebert.errors import DamagedError, LitebertError
from litebert.reading import source as sources
from litebert.reading.source import Source, find_text, read_lines

Write = Callable[[str, bytes | str], Source]
PACK = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
COMPRESSED = pytest.mark.parametrize("suffix", PACK)
MANY = b"".join(b"line %d of many\n" % number for number in range(20_000))


READ = {
    b"one\ntwo\n": ["one", "two"],
    b"one\ntwo": ["one", "two"],
    b"\xef\xbb\xbfone\n": ["one"],
    b"one\r\n\r\ntwo\r\n": ["one", "", "two"],
    "a\u2028b\x85c\x0bd\n".encode(): ["a\u2028b\x85c\x0bd"],
    b"\n\n\n": ["", "", ""],
}


@pytest.mark.parametrize("content", READ)
def test_lines_are_numbered_as_an_editor_does(source: Write, content: bytes) -> None:
    assert list(read_lines(source("a.txt", content))) == list(enumerate(READ[content], 1))


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
import zstandard
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


def test_file_that_vanishes_is_an_error_of_the_user(write: Callable[[str, bytes], Path]) -> None:
    path = write("gone.txt", b"text")
    file = find_text(str(path))
    path.unlink()
    with pytest.raises(LitebertError, match="cannot be read"):
        list(read_lines(file))


def test_control_without_a_cap_the_long_line_is_read(source: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = source("long.txt", b"short\nshort\n" + b"x" * (3 << 20))
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(LitebertError, match="line 3: too long"):
        list(read_lines(file))
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1 << 40)
    assert [len(line) for _, line in read_lines(file)] == [5, 5, 3 << 20]
