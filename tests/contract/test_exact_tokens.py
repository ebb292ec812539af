"""Tokens and offsets: those of the official tokenizer on the real vocabulary, and
golden ones of other vocabularies.
"""

import gzip
from pathlib import Path

import pytest

import litebert
from litebert import Tokenizer

from . import golden
from .tiny import Desk

# ---- the official tokenizer ----------------------------------------------------------

GOLDENS = {
    "this is a test": "48 25 21 1289",
    "Hello, World!": "10975 15 126 187",
    "In 2010, it cost $1,000.": "19 498 15 32 1516 28995 9",
    "Café Münster — naïve “quotes” isn’t": (
        "6241 11402 13 1 16288 13 1 8970 3231 1 2532 1 38"
    ),
    "ﬁne ½ №5 x²": "1123 137 1 135 90 264 993 135",
    "  multi   space\ttab\n": "1889 726 6523",
    "A_B @user #tag <b>": "21 1 220 13 1 16704 6926 8628 13 1 220 1",
    "GPT-3 (OpenAI)": "10538 38 8 240 13 5 10157 3622 6",
    "[MASK] [SEP] <pad>": "636 23265 500 636 18 3492 500 13 1 8240 1",
    "9/11/2001, 3.0, 92000,": "24025 118 3465 15 203 9 387 15 561 3050 15",
}
QUESTION = "When was the Café Königsplatz opened?"
CONTEXT = (
    "The Café  Königsplatz (est. 1,905) was opened in May 1905, in Munich. It has 2,000"
    " seats."
)
IDS_OF_QUESTION_AND_CONTEXT = (
    "2 76 23 14 6241 22781 18 25425 520 60 3 14 6241 22781 18 25425 13 5 1430 9 137 15"
    " 3165 264 6 23 520 19 123 4974 15 19 7013 9 32 63 8819 2724 9 3"
)


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split()]


@pytest.mark.parametrize(("text", "ids"), GOLDENS.items(), ids=GOLDENS)
def test_a_text_has_the_ids_of_the_official_tokenizer(
    official: Tokenizer, text: str, ids: str
) -> None:
    assert official.encode(text).ids == numbers(ids)


def test_a_mask_is_one_token_on_request(official: Tokenizer) -> None:
    encoding = official.encode("Test sentence with [MASK].", special_tokens=True)
    assert encoding.ids == [2, 1289, 5123, 29, 4, 13, 9, 3]
    assert encoding.offsets[4] == (19, 25)


def test_a_pair_is_framed_and_has_two_segments(official: Tokenizer) -> None:
    encoding = official.encode("Question?", "Answer")
    assert encoding.pieces == ["[CLS]", "▁question", "?", "[SEP]", "▁answer", "[SEP]"]
    assert encoding.ids == [2, 1301, 60, 3, 1623, 3]
    assert encoding.segments == [0, 0, 0, 0, 1, 1]


def test_an_answer_in_a_context_is_found_by_its_pieces(official: Tokenizer) -> None:
    encoding = official.encode(QUESTION, CONTEXT)
    assert encoding.ids == numbers(IDS_OF_QUESTION_AND_CONTEXT)
    month, year = encoding.offsets[28:30]
    assert CONTEXT[slice(*month)] == "May"
    assert CONTEXT[slice(*year)] == "1905"


def test_the_official_vocabulary_has_its_documented_layout(official: Tokenizer) -> None:
    first = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    first += ["(", ")", '"', "-", ".", "–", "£", "€", "▁"]
    assert [official.piece(id_) for id_ in range(14)] == first
    assert official.vocab_size == 30_000
    assert official.piece(29_999) == "▁eloquent"


def test_special_tokens_come_first_in_the_official_vocabulary(
    official: Tokenizer,
) -> None:
    assert official.pad_id == 0
    assert official.unk_id == 1
    assert official.cls_id == 2
    assert official.sep_id == 3
    assert official.mask_id == 4


# ---- plain SentencePiece -------------------------------------------------------------


def wikitext(real_data: Path, num_lines: int) -> list[str]:
    """Return the first lines of Wikitext-2 that are not blank."""
    path = real_data / "text" / "wikitext2_test.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    return lines[:num_lines]


def ends_in_number_comma(piece: str) -> bool:
    return piece[-1] == "," and piece[-2:-1].isdigit()


def test_plain_sentencepiece_differs_only_by_the_number_commas(
    official: Tokenizer, real_data: Path
) -> None:
    import sentencepiece

    model = str(real_data / "tokenizer" / "spiece.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    texts = [text for text in wikitext(real_data, 1_000) if text.isascii()]
    for text, ids in zip(texts, official.encode_ids(texts), strict=True):
        plain = processor.encode(" ".join(text.split()).lower(), out_type=str)
        assert "".join(official.encode(text).pieces) == "".join(plain)
        if not any(map(ends_in_number_comma, plain)):
            assert ids == processor.piece_to_id(plain)


# ---- recorded tokens -----------------------------------------------------------------

SAMPLES = [
    *GOLDENS,
    "The cat sat on the mat.",
    "\u1e9e Straße İstanbul ǅ",
    "日本語 と emoji 👩‍👩‍👧 e\u0301 \u200b \ufeff",
    "a\ud800b",  # half of a character
    "",
]


def described(tokenizer: Tokenizer) -> list[dict[str, object]]:
    """Return ids, segments, pieces and offsets of the samples, alone and in pairs."""
    encodings = [tokenizer.encode(text) for text in SAMPLES]
    encodings += tokenizer.encode_batch(SAMPLES[:4], SAMPLES[4:8], special_tokens=True)
    descriptions = list[dict[str, object]]()
    for encoding in encodings:
        description = {
            "ids": encoding.ids,
            "segments": encoding.segments,
            "pieces": encoding.pieces,
            "offsets": [list(offset) for offset in encoding.offsets],
        }
        descriptions.append(description)
    return descriptions


def test_golden_tokens_of_the_packaged_model() -> None:
    description = described(litebert.load().tokenizer)
    assert description == golden.expected("tokens", "packaged", description)


def test_golden_tokens_of_the_official_vocabulary(official: Tokenizer) -> None:
    description = described(official)
    assert description == golden.expected("tokens", "official", description)


def test_golden_tokens_of_a_vocabulary_that_is_trained(desk: Desk) -> None:
    tokenizer = Tokenizer.load(desk.tokenizer)
    rows = [{"pieces": list(tokenizer.pieces), "hash": tokenizer.hash}]
    assert rows == golden.expected("tokens", "trained", rows)


def test_decoding_gives_the_normalized_text(desk: Desk) -> None:
    tokenizer = Tokenizer.load(desk.tokenizer)
    for line in desk.stories.read_text("utf-8").splitlines():
        assert tokenizer.decode(tokenizer.encode(line, frame=True).ids) == line.lower()
