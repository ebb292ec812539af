"""Inputs: looked up before work begins, decompressed, cut into lines; rows of .jsonl
and .parquet files.
"""

import gzip
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from litebert.corpus.text import TextSettings, read_passages, texts_of
from litebert.errors import DamagedError, LitebertError
from litebert.reading import lines, pieces, remote
from litebert.reading.lines import read_lines
from litebert.reading.objects import columns_of
from litebert.reading.source import Source, find_file, find_input, find_texts
from tests.memory import run_in_child
from tests.tables import Write

Find = Callable[[str, bytes | str], Source]
PACK = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
COMPRESSED = pytest.mark.parametrize("suffix", PACK)
MANY = b"".join(b"line %d of many\n" % number for number in range(20_000))


def test_lines_are_numbered_as_an_editor_does(source: Find) -> None:
    for content, expected in {
        b"one\ntwo\n": ["one", "two"],
        b"one\ntwo": ["one", "two"],
        b"\xef\xbb\xbfone\n": ["one"],
        b"one\r\n\r\ntwo\r\n": ["one", "", "two"],
        "a\u2028b\x85c\x0bd\n".encode(): ["a\u2028b\x85c\x0bd"],
        b"\n\n\n": ["", "", ""],
    }.items():
        assert list(read_lines(source("a.txt", content))) == list(
            enumerate(expected, 1)
        )


@COMPRESSED
def test_files_may_be_compressed_in_one_member_or_several(
    source: Find, suffix: str
) -> None:
    read = list(read_lines(source(f"a.txt{suffix}", PACK[suffix](MANY))))
    assert read == list(enumerate(MANY.decode().splitlines(), 1))
    file = source(
        f"b.txt{suffix}", PACK[suffix](b"one\ntw") + PACK[suffix](b"o\nthree\n")
    )
    assert [line for _, line in read_lines(file)] == ["one", "two", "three"]


@pytest.mark.parametrize("piece_bytes", [1 << 18, 1_000])
def test_bytes_not_in_utf8_are_named_by_line(
    source: Find, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece_bytes)
    with pytest.raises(
        LitebertError, match=r"line 20,001: not UTF-8(?s:.*)iconv -f WINDOWS-1252"
    ) as caught:
        list(read_lines(source("latin.txt", MANY + b"caf\xe9 noir\n" + MANY)))
    assert caught.value.received == "byte 0xe9, byte 4 of the line"
    mixed = "schön\nblöd\n".encode() + b"m\xfcde\n"
    with pytest.raises(LitebertError, match="correct this line"):
        list(read_lines(source("mixed.txt", mixed)))
    with pytest.raises(LitebertError, match=r"CP932 .*日本語(.|\n)*-f CP932"):
        list(read_lines(source("sjis.txt", "日本語\n".encode("shift-jis"))))
    with pytest.raises(LitebertError, match=r"not UTF-8(?s:.*)iconv -f UTF-16"):
        list(read_lines(source("wide.txt", "one\n".encode("utf-16"))))
    for suffix, pack in PACK.items():
        with pytest.raises(
            LitebertError,
            match=rf"(?s)not UTF-8.*next: +mv \S*packed\.txt \S*packed\.txt\{suffix}$",
        ):
            list(read_lines(source("packed.txt", pack(MANY))))


PEAK = """
import pyarrow
from litebert.reading.lines import read_lines
from litebert.reading.source import find_input
before = peak_memory()
try:
    list(read_lines(find_input(sys.argv[1])))
except Exception as error:
    print("too long" in str(error), peak_memory() - before)
"""


@COMPRESSED
def test_line_of_a_gigabyte_is_refused_in_a_hundred_megabytes(
    write: Write, suffix: str
) -> None:
    path = write(f"long.txt{suffix}", PACK[suffix](b"x" * (16 << 20)) * 64)
    is_too_long, grown = run_in_child(PEAK, path)
    assert is_too_long == "True" and int(grown) < 100 << 20


@COMPRESSED
def test_file_that_is_damaged_cut_off_or_not_compressed_is_refused(
    source: Find, suffix: str
) -> None:
    packed = PACK[suffix](MANY)
    flipped = bytearray(gzip.compress(MANY))
    flipped[len(flipped) // 2] ^= 0x10
    damaged = {
        f"{share}.txt{suffix}": packed[: int(share * len(packed))]
        for share in (0.05, 0.5, 0.99)
    }
    for name, content in {**damaged, "flipped.txt.gz": bytes(flipped)}.items():
        with pytest.raises(DamagedError, match="damaged or cut off after line"):
            list(read_lines(source(name, content)))
    with pytest.raises(DamagedError, match="after line 0"):
        list(read_lines(source(f"plain.txt{suffix}", b"not compressed\n")))


@COMPRESSED
def test_bomb_is_stopped(
    source: Find, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(pieces, "BOMB_BYTES", 1 << 20)
    for line in (b"\n", b" \n", b"x\n", b"a,b\n\n"):
        monkeypatch.setattr(lines, "MAX_BLANK_BYTES", 1 << 30)
        bomb = PACK[suffix](line * ((8 << 20) // len(line)))
        with pytest.raises(DamagedError, match="far too large when decompressed"):
            list(read_lines(source(f"bomb.txt{suffix}", bomb)))


@pytest.mark.parametrize("suffix", ["", *PACK])
@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n", b"\r\n"])
def test_a_gap_of_more_than_a_mebibyte_of_blank_lines_is_refused(
    source: Find, suffix: str, blank: bytes
) -> None:
    gap = blank * ((2 << 20) // len(blank))
    pack = PACK.get(suffix, bytes)
    file = source(f"gap.txt{suffix}", pack(b"one\n" + gap + b"two\n"))
    with pytest.raises(LitebertError, match=r"LB-308[\s\S]*blank lines"):
        list(read_lines(file))
    short = source(f"gap.txt{suffix}", pack(b"one\n" + gap[: 512 << 10] + b"two\n"))
    assert [line for _, line in read_lines(short) if line.strip()] == ["one", "two"]


def test_control_without_a_cap_the_long_line_is_read(
    source: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = source("long.txt", b"short\nshort\n" + b"x" * (3 << 20))
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(LitebertError, match="line 3: too long"):
        list(read_lines(file))
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 40)
    assert [len(line) for _, line in read_lines(file)] == [5, 5, 3 << 20]


REFUSED = {
    **dict.fromkeys(("a.csv", "a", "a.gz", "a.parquet.gz", "a.txt.bz2"), "LB-304"),
    "a.json": r"LB-304(?s:.*)convert it to .txt or .jsonl",
    "b.csv": r"LB-304(?s:.*)litebert finetune",
    "a.docx": r"LB-304(?s:.*)convert it to \.txt",
    **dict.fromkeys(("nowhere.txt", "two\nlines.txt", "a\0b.txt"), "cannot be read"),
    **dict.fromkeys(
        ("file:///nowhere.txt", "nosuchscheme://bucket/a.txt"), "cannot be read"
    ),
    "folder.txt": "(?s:.*)it is a folder(?s:.*)name the files",
    "empty.txt": "has no content",
}


def test_inputs_that_are_no_text_are_refused(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.txt").mkdir()
    write("empty.txt", "")
    for name, message in REFUSED.items():
        if message.startswith("LB-304"):
            write(name, "{}")
        with pytest.raises(LitebertError, match=message):
            find_input(name)
    with pytest.raises(LitebertError, match="there is no input"):
        find_texts([])
    for name in ("", ".", "..", "folder.txt"):
        with pytest.raises(LitebertError, match=r"LB-303[\s\S]*it is a folder"):
            find_file(Path(name))
    write("folder.txt/one.txt", "text")
    with pytest.raises(LitebertError) as raised:
        find_input("folder.txt")
    assert raised.value.next == "name the files in it: folder.txt/*.txt"
    file = find_input(str(path := write("gone.txt", b"text")))
    assert find_texts(path) == find_texts(str(path)) == (file,), (
        "a single path is one input"
    )
    path.unlink()
    with pytest.raises(LitebertError, match="cannot be read"):
        list(read_lines(file))


MISSING = [
    ("a.txt.zst", "pyarrow", "data"),
    ("a.parquet", "pyarrow", "data"),
    ("s3://a/b.txt", "obstore", "cluster"),
]


@pytest.mark.parametrize(("name", "package", "extra"), MISSING)
def test_an_error_for_a_missing_package_names_its_extra(
    write: Write, monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    for module in (
        package,
        *(name for name in sys.modules if name.startswith(f"{package}.")),
    ):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LitebertError, match=package) as caught:
        list(
            read_passages(
                find_input(name if "://" in name else str(write(name, b"x"))),
                TextSettings(),
            )
        )
    assert caught.value.next == f"pip install 'litebert[{extra}]'"


def read(path: Path, column: str = "text") -> list[tuple[int, str]]:
    passages = read_passages(find_input(str(path)), TextSettings(column=column))
    return [(passage.line, passage.text) for passage in passages]


NO_OBJECTS = [
    '{"text": "one"',
    '{"text": NaN}',
    '{"text": "one", "text": "two"}',
    '{"text": "one"} {}',
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"n": ' + "9" * 5_000 + "}",
    '{"text": "tab\tinside"}',
    '["text"]',
    "null",
]
NO_TEXTS: list[tuple[dict[str, object], str]] = [
    *(
        ({"text": value}, "is not text")
        for value in (None, 3, True, {"a": "b"}, [["one"], 3])
    ),
    ({}, r"no column text(?s:.*)not empty(?s:.*)correct this row"),
    (
        {"title": "a", "texts": "b"},
        r"no column text(?s:.*)one of title, texts(?s:.*)did you mean texts\?",
    ),
]


def test_line_that_is_no_object_or_has_no_text_is_refused_with_its_number(
    write: Write,
) -> None:
    for line in NO_OBJECTS:
        with pytest.raises(
            LitebertError, match=r"line 3: not (JSON|an object)"
        ) as caught:
            read(write("a.jsonl", f'{{"text": "one"}}\n\n{line}\n'))
        assert len(str(caught.value)) < 800
    source = Source("a.jsonl", "/a.jsonl", ".jsonl", "", 9)
    for row, message in NO_TEXTS:
        with pytest.raises(LitebertError, match=message):
            list(texts_of(row, "text", source, 3))
    path = write(
        "a.jsonl",
        '{"text": "one\\n\\ntwo"}\n\n{"text": ""}\n{"text": [[], ["a\\ud800b"]]}\n',
    )
    assert read(path) == [(1, "one\n\ntwo"), (3, ""), (4, "a\ufffdb")]


def test_parquet_rows_are_documents(tmp_path: Path) -> None:
    rows = [{"text": f"text {k}", "chapters": [f"{k}a", f"{k}b"]} for k in range(100)]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert read(path) == [(k + 1, f"text {k}") for k in range(100)]
    assert read(path, "chapters")[:4] == [(1, "0a"), (1, "0b"), (2, "1a"), (2, "1b")]
    with pytest.raises(
        LitebertError, match=r"there is no column txt(?s:.*)one of text, chapters"
    ):
        read(path, "txt")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["one", None]}), path)
    with pytest.raises(
        LitebertError, match=r"a\.parquet, row 2: column text is not text"
    ):
        read(path)


def test_parquet_that_is_damaged_or_whose_strings_are_not_utf8_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.parquet"
    words = pyarrow.array([b"fine", b"caf\xe9"])
    words = pyarrow.StringArray.from_buffers(2, *words.buffers()[1:])
    pyarrow.parquet.write_table(pyarrow.table({"text": words}), path)
    with pytest.raises(DamagedError, match=r"LB-342.*a\.parquet, row 2"):
        read(path)
    table = pyarrow.table(
        {"text": [json.dumps(list(range(k, k + 40))) for k in range(2_000)]}
    )
    pyarrow.parquet.write_table(table, path, compression="gzip", use_dictionary=False)
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]
    for content in (
        flipped,
        *(whole[: int(len(whole) * share)] for share in (0.1, 0.5, 0.95)),
    ):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match="is damaged after row"):
            read(path)


SECRETS = (
    "s3://me:hunter2@bucket/a.txt",
    "nosuchscheme://me:hunter2@host/a.txt",
    "https://me:hun@ter2/hunter2@host/a.txt",
    "https://host/a.txt?X-Amz-Signature=hunter2&part=1",
    "https://host/a.txt?sig=hunter2",
    "https://:hunter2@[::1/a.txt",
)


@pytest.mark.parametrize("url", SECRETS)
def test_no_message_shows_the_password_of_a_url(
    url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from litebert.errors import say

    monkeypatch.setattr(remote, "PAUSE", timedelta(seconds=0.001))
    monkeypatch.setattr(remote, "_TIMEOUT", "1s")
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    with pytest.raises(LitebertError) as caught:
        find_input(url)
    say(f"reading {url}")
    shown = f"{caught.value!r} {caught.value}{capfd.readouterr()}"
    assert "hunter2" not in shown


LABELED = {"result": [{"value": {"choices": ["good"]}}]}
TASKS = {
    "never annotated": ({"completions": []}, None),
    "cancelled, then labeled": (
        {"annotations": [{"result": [], "was_cancelled": True}, LABELED]},
        "good",
    ),
    "damaged": (
        {"annotations": [{"result": ["?", {"value": {"choices": None}}]}]},
        None,
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_tasks_of_label_studio_have_a_label_or_none(name: str) -> None:
    annotated, label = TASKS[name]
    row = columns_of({"data": {"text": "A fine film."}, **annotated})
    assert isinstance(row, dict)
    assert row["text"] == "A fine film." and row.get("label") == label
