"""WordPiece: the cases of the official tests, and its special pieces."""

from pathlib import Path

import pytest

from litebert.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (
            "UNwant\u00e9d,running",
            ["un", "##want", "##ed", ",", "runn", "##ing"],
        ),
        (
            " \tHeLLo!how  \n Are yoU?  ",
            ["hello", "!", "how", "are", "you", "?"],
        ),
        ("ah\u535a\u63a8zz", ["ah", "博", "推", "zz"]),
        ("", []),
        ("unwantedX running", ["[UNK]", "runn", "##ing"]),
        ("h\u0005ello$`", ["hello", "$", "`"]),
        pytest.param(
            "want" * 50,
            ["want", *["##want"] * 49],
            id="the longest word, of 200 letters",
        ),
        pytest.param("want" * 50 + "ed", ["[UNK]"], id="a word that is too long"),
    ],
)
def test_official_cases_have_their_pieces(
    wordpiece: Tokenizer, text: str, pieces: list[str]
) -> None:
    encoding = wordpiece.encode(text)
    assert encoding.pieces == pieces
    assert encoding.ids == [wordpiece.id(piece) for piece in pieces]


def test_the_name_of_a_special_piece_is_text(wordpiece: Tokenizer) -> None:
    assert wordpiece.mask_id not in wordpiece.encode("[MASK]").ids


def test_a_pair_is_framed_with_special_pieces(wordpiece: Tokenizer) -> None:
    encoding = wordpiece.encode("want [MASK]", "you", special_tokens=True)
    assert encoding.pieces == ["[CLS]", "want", "[MASK]", "[SEP]", "you", "[SEP]"]
    assert encoding.segments == [0, 0, 0, 0, 1, 1]


def test_pieces_with_marks_continue_a_word(wordpiece: Tokenizer) -> None:
    continuing = []
    for id_, piece in enumerate(wordpiece.pieces):
        if not wordpiece.starts_word[id_]:
            continuing.append(piece)
    assert continuing == [p for p in wordpiece.pieces if p.startswith("##")]
    assert "##want" in continuing


def test_a_vocabulary_replaces_one_of_the_other_kind(
    wordpiece: Tokenizer, own: Tokenizer, tmp_path: Path
) -> None:
    """Two vocabularies in a folder would contradict each other."""
    for tokenizer in (own, wordpiece, own):
        tokenizer.save(tmp_path)
        assert Tokenizer.load(tmp_path).hash == tokenizer.hash


def test_decoding_omits_special_pieces(wordpiece: Tokenizer) -> None:
    encoding = wordpiece.encode("want [MASK]", "you", special_tokens=True)
    assert wordpiece.decode(encoding.ids) == "want you"


def test_decoding_marks_unknown_words(wordpiece: Tokenizer) -> None:
    assert wordpiece.decode(wordpiece.encode("unwanted xx").ids) == "unwanted ⁇"
