"""Encodings of files: what Windows writes is recognized, and read for what it means."""

import json

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
