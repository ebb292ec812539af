"""Encodings of files: what Windows writes is recognized, and read for what it means."""

import json
import shutil
import subprocess

import pytest

from litebert.errors import LitebertError
from litebert.reading.encoding import find_encoding
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.layouts import open_table
from tests.tables import REVIEWS, Write, jsonl, read_pairs

# ---- which encoding a text has -------------------------------------------------------

WESTERN = {
    "German": "Größe;Anfrage\nXL;Das Gerät lässt sich nicht öffnen, schöne Grüße!\n",
    "French": "L’été à la forêt créée, œuvre de François; ça va «très» bien\n",
    "Spanish": "El niño comió una piña en España. ¿Qué? ¡Sí! Corazón, acción\n",
    "Portuguese": "A situação não é fácil; coração, três irmãs, à noite\n",
    "Danish": "Æblet er rødt, og på øen går børnene; Århus først\n",
    "English": "It’s a fine “film” — truly, a café " + "and more plain words " * 20,
}
every_language = pytest.mark.parametrize("language", WESTERN)


@every_language
@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        pytest.param("cp1252", "cp1252", id="Windows"),
        pytest.param("utf-8", "utf-8", id="UTF-8"),
        pytest.param("utf-16", "utf-16", id="UTF-16 with a mark"),
    ],
)
def test_the_encoding_of_western_text_is_recognized(
    language: str, encoding: str, name: str
) -> None:
    content = (WESTERN[language] * 20).encode(encoding)
    assert find_encoding(content) == name


@every_language
def test_a_start_that_ends_within_a_character_is_still_utf8(language: str) -> None:
    content = (WESTERN[language] * 20 + "é").encode()
    assert find_encoding(content[:-1]) == "utf-8"


@every_language
def test_a_few_damaged_characters_leave_utf8_what_it_is(language: str) -> None:
    content = (WESTERN[language] * 20).encode()
    assert find_encoding(content + b"\xe9 \xe9") == "utf-8"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1250", "Zażółć gęślą jaźń, świeża trawa; Příliš žluťoučký kůň úpěl ódy\n"),
        ("cp1254", "Bugün hava çok güzel, şarkı söylüyor, ağaç ığdır\n"),
        ("cp1251", "Привет, как дела? Очень хорошо\n"),
        ("koi8-r", "Привет, как дела? Очень хорошо\n"),
        ("cp1253", "Καλημέρα, τι κάνεις; Πολύ καλά\n"),
        ("gbk", "id,text\n1,你好，我很高兴认识你。今天天气很好\n"),
        ("shift_jis", "こんにちは世界、元気ですか\n"),
        ("mac_roman", "Größe; Das Gerät lässt sich nicht öffnen, schöne Grüße\n"),
    ],
)
def test_other_encodings_are_not_taken_for_western(encoding: str, text: str) -> None:
    # UTF-8 is then refused where its first wrong byte stands.
    assert find_encoding((text * 20).encode(encoding)) == "utf-8"


# ---- tables in them ------------------------------------------------------------------

PAIRS = REVIEWS * 3
ROWS = [{"text": text, "label": label} for text, label in PAIRS]
CONTENT = {
    "a.csv": "text;label\r\n" + "\r\n".join(f"{text};{label}" for text, label in PAIRS),
    "a.txt": "\n".join(f"{text}\t{label}" for text, label in PAIRS),
    "a.json": json.dumps(ROWS, ensure_ascii=False),
    "a.jsonl": jsonl(ROWS),
}


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize(
    ("encoding", "spoken"),
    [
        ("cp1252", "Windows-1252"),
        ("utf-16", "UTF-16"),
        pytest.param("utf-16-le", "UTF-16", id="utf-16 without a mark"),
    ],
)
def test_tables_of_windows_are_read_with_a_note(
    encoding: str, spoken: str, name: str, write: Write
) -> None:
    path = write(name, CONTENT[name].encode(encoding))
    assert read_pairs(path) == PAIRS
    assert spoken in table_dataset(path).notes[0]


def test_a_byte_that_the_encoding_lacks_is_refused_with_its_place(
    write: Write,
) -> None:
    # far behind the start, by which the encoding is recognized
    start = "text;label\n" + "Das Gerät lässt sich öffnen;gut\n" * 200_000
    path = write("a.csv", start.encode("cp1252") + b"\x81;gut\n")
    with pytest.raises(LitebertError, match=r"LB-309: .*not Windows-1252 after line"):
        list(open_table(path).rows())


# ---- encodings of other languages ----------------------------------------------------

FOREIGN = {
    "gbk": ("这个水壶很好用，我很满意", "这个灯两天就坏了，我要退货"),
    "big5": ("這個水壺很好用，我很滿意", "這個燈兩天就壞了，我要退貨"),
    "shift_jis": ("この時計はとても使いやすいです", "このランプは二日で壊れました"),
    "euc_jp": ("この時計はとても使いやすいです", "このランプは二日で壊れました"),
    "cp949": ("이 주전자는 아주 좋습니다", "램프가 이틀 후에 고장났습니다"),
    "cp1251": ("Этот чайник очень хороший", "Лампа сломалась через два дня"),
    "koi8-r": ("Этот чайник очень хороший", "Лампа сломалась через два дня"),
    "cp1253": ("Ο βραστήρας είναι πολύ καλός", "Η λάμπα χάλασε μετά από δύο μέρες"),
    "cp1254": ("Bu çaydanlık çok güzel, şık", "Lamba iki gün sonra bozuldu, ışık yok"),
    "cp1250": ("Czajnik jest świetny i żółty", "Lampa zepsuła się, więc zwróciłem ją"),
    "mac_roman": ("Das Gerät lässt sich öffnen", "Über die Größe ärgere ich mich"),
}
every_encoding = pytest.mark.parametrize("encoding", FOREIGN)


def foreign_table(encoding: str) -> str:
    """Return a table of two texts of the language of an encoding, several times."""
    good, bad = FOREIGN[encoding]
    return "text;label\n" + f"{good};1\n{bad};0\n" * 20


@every_encoding
def test_an_uncertain_encoding_is_told_by_a_line_and_the_command_that_converts(
    encoding: str, write: Write
) -> None:
    path = write("a.csv", foreign_table(encoding).encode(encoding))
    with pytest.raises(LitebertError, match=r"LB-309: .*line 2: not UTF-8") as caught:
        open_table(path)
    assert FOREIGN[encoding][0] in str(caught.value.expected)
    assert caught.value.next is not None
    if shutil.which("iconv") is None:
        return
    subprocess.run(caught.value.next, shell=True, check=True, cwd=path.parent)
    assert (path.parent / "converted.csv").read_text("utf-8") == foreign_table(encoding)


def test_bytes_that_no_encoding_makes_readable_are_left_to_their_program(
    write: Write,
) -> None:
    path = write("a.csv", b"text,label\n" + bytes(range(0x80, 0x100)) * 9)
    with pytest.raises(LitebertError, match="LB-309") as caught:
        open_table(path)
    assert caught.value.next is not None
    assert "in the program that it comes from" in caught.value.next


@every_encoding
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("utf-16-le", id="little-endian"),
        pytest.param("utf-16-be", id="big-endian"),
        pytest.param("utf-32", id="32 bits with a mark"),
    ],
)
def test_wide_encodings_of_any_language_are_read(
    encoding: str, name: str, write: Write
) -> None:
    table = foreign_table(encoding)
    path = write("a.csv", table.encode(name))
    lines = table.splitlines()[1:]
    assert read_pairs(path) == [tuple(line.split(";")) for line in lines]


def test_a_few_nul_bytes_do_not_make_a_file_wide(write: Write) -> None:
    path = write("a.csv", b"text,label\nso g\0od,1\nso bad,0\n")
    with pytest.raises(LitebertError, match=r"LB-844: .*line 2: a NUL byte"):
        list(open_table(path).rows())
