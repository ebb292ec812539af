"""WordPiece vocabularies: the official tests' cases, Chinese, offsets, transformers, damage."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert import files
from litebert.errors import LitebertError
from litebert.tokenizer import Tokenizer

GOLDEN = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]
MORE = ["[PAD]", "[MASK]", "hello", "!", "how", "are", "you", "?", "ah", "博", "推", "zz", "`", "$"]
VOCABULARY = "\n".join([*GOLDEN, *MORE]) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wordpiece")
    files.write_text(path / "vocab.txt", VOCABULARY)
    return path


@pytest.fixture(scope="module")
def wordpiece(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("UNwant\u00e9d,running", ["un", "##want", "##ed", ",", "runn", "##ing"]),
        (" \tHeLLo!how  \n Are yoU?  ", ["hello", "!", "how", "are", "you", "?"]),
        ("ah\u535a\u63a8zz", ["ah", "博", "推", "zz"]),
        ("", []),
        ("unwantedX running", ["[UNK]", "runn", "##ing"]),
        ("h\u0005ello$`", ["hello", "$", "`"]),
        ("w" * 201, ["[UNK]"]),
    ],
)  # fmt: skip
def test_the_official_cases(wordpiece: Tokenizer, text: str, pieces: list[str]) -> None:
    encoding = wordpiece.encode(text)
    assert encoding.pieces == pieces
    assert encoding.ids == [wordpiece.id(piece) for piece in pieces]


def test_special_names_and_pairs(wordpiece: Tokenizer) -> None:
    assert wordpiece.mask_id not in wordpiece.encode("[MASK]").ids
    encoding = wordpiece.encode("want [MASK]", "you", special_tokens=True)
    assert encoding.pieces == ["[CLS]", "want", "[MASK]", "[SEP]", "you", "[SEP]"]
    assert encoding.segments == [0, 0, 0, 0, 1, 1]
    assert wordpiece.decode(encoding.ids) == "want you"
    assert [wordpiece.piece(k) for k in range(11) if not wordpiece.starts_word[k]] == ["##want", "##ed", "##ing"]
    assert wordpiece.decode(wordpiece.encode("unwanted xx").ids) == "unwanted ⁇"


@given(st.text(st.characters(exclude_categories=())))
@settings(max_examples=200, deadline=None)
def test_any_string_encodes(wordpiece: Tokenizer, text: str) -> None:
    encoding = wordpiece.encode(text)
    assert encoding.ids == wordpiece.encode_ids([text])[0]
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)


def test_damage_is_refused_by_name(tmp_path: Path) -> None:
    whole = VOCABULARY.encode()
    damages = {b"\xff\xfe": "LB-241", b"x" * 1025 + b"\n" + whole: "LB-242"}
    for data, code in {**damages, whole + b"want\n": "LB-243", b"want\n": "LB-211"}.items():
        files.write_bytes(tmp_path / "vocab.txt", data)
        with pytest.raises(LitebertError, match=code):
            Tokenizer.load(tmp_path)


def test_a_missing_library_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(LitebertError, match=r"(?s)LB-305.*pip install 'litebert\[wordpiece\]'"):
        Tokenizer.load(folder)
