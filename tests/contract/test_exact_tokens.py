"""Tokens and offsets: those of the official tokenizer on the real vocabulary, and
golden ones of other vocabularies.
"""

import gzip
from pathlib import Path

import pytest

import litebert as package
from litebert import Tokenizer

from . import golden
from .tiny import Desk

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
SQUAD_QUESTION = "When was the Café Königsplatz opened?"
SQUAD_CONTEXT = (
    "The Café  Königsplatz (est. 1,905) was opened in May 1905, in Munich. It has 2,000"
    " seats."
)
SQUAD_IDS = (
    "2 76 23 14 6241 22781 18 25425 520 60 3 14 6241 22781 18 25425 13 5 1430 9 137 15"
    " 3165 264 6 23 520 19 123 4974 15 19 7013 9 32 63 8819 2724 9 3"
)


SAMPLES = [*GOLDENS, "The cat sat on the mat.", "\u1e9e Straße İstanbul ǅ"]
SAMPLES += ["日本語 と emoji 👩‍👩‍👧 e\u0301 \u200b \ufeff", "a\ud800b", ""]


@pytest.mark.parametrize(("text", "ids"), GOLDENS.items())
def test_official_golden_ids(official: Tokenizer, text: str, ids: str) -> None:
    assert official.encode(text).ids == [int(number) for number in ids.split()]


def test_a_mask_is_read_only_on_request_and_a_pair_is_framed_with_segments(
    official: Tokenizer,
) -> None:
    encoding = official.encode("Test sentence with [MASK].", special_tokens=True)
    assert encoding.ids == [2, 1289, 5123, 29, 4, 13, 9, 3]
    assert encoding.offsets[4] == (19, 25)
    encoding = official.encode("Question?", "Answer")
    assert (encoding.ids, encoding.segments) == (
        [2, 1301, 60, 3, 1623, 3],
        [0, 0, 0, 0, 1, 1],
    )
    assert encoding.pieces == ["[CLS]", "▁question", "?", "[SEP]", "▁answer", "[SEP]"]


def test_squad_golden_has_the_answer_at_its_pieces(official: Tokenizer) -> None:
    encoding = official.encode(SQUAD_QUESTION, SQUAD_CONTEXT)
    assert encoding.ids == [int(number) for number in SQUAD_IDS.split()]
    assert [SQUAD_CONTEXT[start:end] for start, end in encoding.offsets[28:30]] == [
        "May",
        "1905",
    ]


def test_the_official_vocabulary_has_its_documented_layout(official: Tokenizer) -> None:
    first = [
        "<pad>",
        "<unk>",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "(",
        ")",
        '"',
        "-",
        ".",
        "–",
        "£",
        "€",
    ]
    assert [official.piece(k) for k in range(14)] == [*first, "▁"]
    assert official.piece(29_999) == "▁eloquent" and official.vocab_size == 30_000
    special = (
        official.pad_id,
        official.unk_id,
        official.cls_id,
        official.sep_id,
        official.mask_id,
    )
    assert special == (0, 1, 2, 3, 4)


def test_plain_sentencepiece_differs_only_by_the_number_commas(
    official: Tokenizer, real_data: Path
) -> None:
    import sentencepiece

    with gzip.open(
        real_data / "text" / "wikitext2_test.txt.gz", "rt", encoding="utf-8"
    ) as file:
        wikitext = [line for line in file if line.strip()]
    model = str(real_data / "tokenizer" / "spiece.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    texts = [text for text in wikitext[:1000] if text.isascii()]
    for text, ids in zip(texts, official.encode_ids(texts), strict=True):
        plain = processor.encode(" ".join(text.split()).lower(), out_type=str)
        has_number_comma = any(p[-1] == "," and p[-2:-1].isdigit() for p in plain)
        assert has_number_comma or ids == processor.piece_to_id(plain)
        assert "".join(plain) == "".join(official.encode(text).pieces)


def described(tokenizer: Tokenizer) -> list[dict]:
    """Return ids, pieces and offsets of the texts above, alone and in pairs."""
    encoded = [tokenizer.encode(text) for text in SAMPLES]
    encoded += tokenizer.encode_batch(SAMPLES[:4], SAMPLES[4:8], special_tokens=True)
    return [
        {
            "ids": encoding.ids,
            "segments": encoding.segments,
            "pieces": encoding.pieces,
            "offsets": [list(o) for o in encoding.offsets],
        }
        for encoding in encoded
    ]


def test_golden_tokens_of_the_packaged_model() -> None:
    description = described(package.load().tokenizer)
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
