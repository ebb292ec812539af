"""Encoding any string, alone or in batches, framed or not; offsets, long texts, commas
after digits; and decoding.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert import rng
from litebert.errors import LitebertError
from litebert.tokenizer import Tokenizer, model_file
from litebert.tokenizer.text import Normalizer
from litebert.tokenizer.tokenizer import LONG
from tests.memory import run_in_child

ANY_TEXT = st.text(st.characters(exclude_categories=()))
WORDPIECES = (
    "[UNK] [CLS] [SEP] want ##want ##ed wa un runn ##ing , [PAD] [MASK] hello ! how are"
    " you ? ah 博 推 zz ` $ anna walked to the house there she found 1 024 red ball ##s"
    " zoe said no ; :"
)


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("wordpiece") / "vocab.txt"
    path.write_text(WORDPIECES.replace(" ", "\n") + "\n")
    return Tokenizer.load(path)


@given(ANY_TEXT)
@example("\x00 \ud800 \ufffe \u202eabc\u200d")
@example("e" + "\u0301" * 10_000)
@example("1,2,3,٣,[MASK] <unk>▁▁ 5,")
@example(
    "½ №  ﬁ\u0301 \u200b\u200bx\x01y\x00 e\u0301\u0301\t, \u1112\u1161\u11ab \u3000"
)
@settings(max_examples=500, deadline=None)
def test_any_string_has_offsets_in_order_and_inside_the_text(
    own: Tokenizer, wordpiece: Tokenizer, text: str
) -> None:
    for tokenizer in (own, wordpiece):
        encoding = tokenizer.encode(text)
        offsets = tokenizer.encode_arrays(text)[1]
        assert tokenizer.encode_ids([text]) == [encoding.ids]
        assert [tokenizer.id(piece) for piece in encoding.pieces] == encoding.ids
        assert encoding.offsets == [(start, end) for start, end in offsets.tolist()]
        assert (
            len(encoding) == len(offsets)
            and ((offsets >= 0) & (offsets <= len(text))).all()
        )
        assert (offsets[:, 0] <= offsets[:, 1]).all() and (
            np.diff(offsets, axis=0) >= 0
        ).all()
    assert len(own.encode(text)) <= len(own._model.normalizer.normalize(text)) + 2


@pytest.mark.slow
@given(ANY_TEXT)
@settings(max_examples=20_000, deadline=None)
def test_twenty_thousand_strings_encode(
    own: Tokenizer, wordpiece: Tokenizer, text: str
) -> None:
    test_any_string_has_offsets_in_order_and_inside_the_text.hypothesis.inner_test(
        own, wordpiece, text
    )
    assert own.encode_ids([text, "a", text]) == [
        own.encode(each).ids for each in (text, "a", text)
    ]


def test_pieces_make_up_known_words_and_decoding_marks_unknown_ones(
    own: Tokenizer, wordpiece: Tokenizer
) -> None:
    for tokenizer, text in (
        (own, "anna walked home"),
        (wordpiece, "anna wanted running"),
    ):
        assert (
            "".join(
                tokenizer.texts[id_] for id_ in tokenizer.encode(text, frame=True).ids
            )
            == f" {text}"
        )
    assert own.decode(own.encode("boats 日本").ids) == "boats  ⁇"


def test_batches_on_any_number_of_threads_and_threads_that_share_a_tokenizer_equal_single_texts(
    own: Tokenizer, sentences: list[str]
) -> None:
    single, offsets = [
        [getattr(own.encode(text), name) for text in sentences]
        for name in ("ids", "offsets")
    ]
    assert [own.encode_ids(sentences, num_threads=number) for number in (1, 2, -1)] == [
        single
    ] * 3
    assert own.encode_ids(iter(sentences)) == single
    assert [each.ids for each in own.encode_batch(sentences)] == single
    assert [own.encode_arrays(text)[0].tolist() for text in sentences] == single
    with ThreadPoolExecutor(16) as pool:
        assert (
            list(pool.map(lambda text: own.encode(text).offsets, sentences)) == offsets
        )


def test_special_names_are_text_unless_requested_and_frames_can_be_forced_and_forbidden(
    own: Tokenizer,
) -> None:
    text = "Jürgen [SEP]<pad> weighed [MASK]ripe <unk>"
    assert {own.pad_id, own.cls_id, own.sep_id, own.mask_id}.isdisjoint(
        own.encode(text).ids
    )
    encoding = own.encode(text, special_tokens=True)
    named = [
        (piece, text[slice(*span)])
        for piece, span in zip(encoding.pieces, encoding.offsets, strict=True)
    ]
    names = ["[CLS]", "[SEP]", "<pad>", "[MASK]", "<unk>", "[SEP]"]
    assert [each for each in named if each[0][0] in "[<"] == [
        *zip(names, ["", *names[1:5], ""], strict=True)
    ]
    assert own.encode("boats", frame=True).ids == [
        own.cls_id,
        *own.encode("boats").ids,
        own.sep_id,
    ]
    assert (
        own.encode("ripe", "boats", frame=False).ids
        == own.encode("ripe").ids + own.encode("boats").ids
    )


def test_wrong_calls_are_refused(own: Tokenizer) -> None:
    calls = [("210", own.encode, [7]), ("210", own.encode_batch, [["a", None]])]
    calls += [
        ("215", own.encode_batch, [["a", "b"], ["c"]]),
        ("216", own.encode_batch, ["abc"]),
    ]
    calls += [
        ("216", own.encode_ids, ["abc"]),
        ("217", own.decode, [[0, 300]]),
        ("217", own.piece, [-1]),
    ]
    for code, call, wrong in calls:
        with pytest.raises(LitebertError, match=f"LB-{code}"):
            call(*wrong)


def test_real_paragraphs_slice_to_words(
    official: Tokenizer, paragraphs: list[str]
) -> None:
    for text in paragraphs[:300]:
        encoding = official.encode(text)
        spelled = "".join(
            Normalizer().normalize(text[s:e]) for s, e in encoding.offsets
        )
        assert spelled == "".join(encoding.pieces).replace("▁", "")


FIVE_MEGABYTES = """
import time
from litebert.tokenizer import Tokenizer

tokenizer = Tokenizer.load(sys.argv[1])

def seconds(repeats):
    text = "The quick brown fox jumps over the lazy dog, naïve as ever. " * repeats
    begin = time.process_time()
    assert len(tokenizer.encode(text).offset_array)
    return time.process_time() - begin

short = min(seconds(10_000) for _ in range(3))
before = used()
long = seconds(80_000)
print(long / short / 8, used() - before)
"""


def test_long_texts_are_encoded_in_bounded_memory_and_linear_time(
    own: Tokenizer, tmp_path: Path
) -> None:
    for text in ("a" * 1_000_000, "日" * 1_000_000, "1," * 500_000, " " * 100_000):
        assert len(own.encode(text).ids) <= len(text) + 2
    own.save(tmp_path)
    ratio, size = map(float, run_in_child(FIVE_MEGABYTES, tmp_path))
    assert ratio < 3  # 8 if time grew with the square of the length
    assert size < 350 << 20


Maker = Callable[[dict[str, float]], bytes]
LETTERS = {"▁": -3.0, ",": -4.0, "1": -5.0, "5": -5.0, "a": -5.0}
COMMAS: list[tuple[dict[str, float], str, list[str]]] = [
    ({"▁15,": -1.0, "▁15": -6.0}, "15, a", ["▁15", ",", "▁", "a"]),
    ({"5,": -1.0}, "15,", ["▁", "1", "5", ","]),
    ({"5,": -1.0, "▁5": -2.0}, "15,", ["▁", "1", "5", ","]),
    ({"a5,": -1.0, "▁a": -2.0}, "1a5,5", ["▁", "1", "a", "5", ",", "5"]),
    # The rule looks at each piece once, as the official code does.
    ({"1,5,": -1.0, "1,": -2.0}, "a1,5,", ["▁", "a", "1,", "5", ","]),
    ({"a,": -1.0}, "a,", ["▁", "a,"]),
]


def test_the_comma_is_split_off_and_no_space_appears(
    make_model: Maker, own: Tokenizer
) -> None:
    for extra, text, pieces in COMMAS:
        tokenizer = Tokenizer.from_model(make_model(LETTERS | extra))
        encoding = tokenizer.encode(text)
        assert (encoding.pieces, encoding.ids) == (
            pieces,
            [tokenizer.id(piece) for piece in pieces],
        )
        assert [text[s:e] for s, e in encoding.offsets] == [
            piece.strip("▁") for piece in pieces
        ]
    # without a piece for the comma, unknown runs are split
    tokenizer = Tokenizer.from_model(make_model({"▁": -3.0, "a": -5.0}))
    text = "a 15, <unk>,"
    encoding = tokenizer.encode(text)
    assert encoding.pieces == ["▁", "a", "▁", "15", ",", "▁", "<unk>,"]
    assert encoding.ids == [tokenizer.id(piece) for piece in encoding.pieces]
    assert tokenizer.encode_ids([text] * 20) == [encoding.ids] * 20
    # a trained vocabulary leaves nothing to split
    numbers = own.encode_ids([f"{n:,}, {n}," for n in range(0, 100_000, 7)])
    demoted = {
        own.id(piece) for piece in own.pieces if model_file.ends_in_number_comma(piece)
    }
    assert demoted and demoted.isdisjoint(chain.from_iterable(numbers))


SENTENCE = (
    "Anna walked\n to the house, there she  found 1,024 red balls; Zoë said: no! "
)
COPIES = LONG // len(SENTENCE) + 2
TEXT = SENTENCE * COPIES


@pytest.fixture(params=["own", "wordpiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.getfixturevalue(request.param)


def test_a_long_text_has_the_ids_and_offsets_of_its_sentences(
    tokenizer: Tokenizer,
) -> None:
    one = tokenizer.encode(SENTENCE)
    long = tokenizer.encode(TEXT)
    assert len(list(tokenizer._parts(TEXT))) > 5
    wanted = one.offset_array + np.arange(COPIES)[:, None, None] * len(SENTENCE)
    ids, offsets = tokenizer.encode_arrays(TEXT)
    assert long.ids == ids.tolist() == one.ids * COPIES
    assert np.array_equal(long.offset_array, wanted.reshape(-1, 2)) and np.array_equal(
        offsets, long.offset_array
    )


def test_the_beginning_of_a_long_text_has_its_first_ids(tokenizer: Tokenizer) -> None:
    letters = (
        "".join(
            rng.stream(5, "letters", 0).choice(
                list("abcdefghijklmnopqrstuvwxyz"), size=70_001
            )
        )
        * 20
    )
    # one word of WordPiece is one piece
    for long in (TEXT, letters) if tokenizer.pieces[0] == "<pad>" else (TEXT,):
        beginning = tokenizer.beginning(long, 512)
        assert long.startswith(beginning) and len(beginning) <= (
            LONG if long is letters else LONG // 2
        ) < len(long)
        assert tokenizer.encode(beginning).ids[:512] == tokenizer.encode(long).ids[:512]
    assert (
        tokenizer.beginning(SENTENCE, 1) == SENTENCE
        and tokenizer.beginning(TEXT, len(TEXT)) == TEXT
    )


def test_a_text_is_not_cut_where_pieces_run_over_spaces(own_model: bytes) -> None:
    found = model_file.read_model(own_model, "own")
    phrase = model_file.Piece("▁to▁the▁house", -0.1, model_file.NORMAL)
    tokenizer = Tokenizer.from_model(
        model_file.write_model([*found.pieces, phrase], found.charsmap)
    )
    ids, _ = tokenizer.encode_arrays(TEXT)
    assert np.count_nonzero(ids == tokenizer.id(phrase.text)) == COPIES


OFFICIAL_WORDPIECES = {
    "UNwant\u00e9d,running": ["un", "##want", "##ed", ",", "runn", "##ing"],
    " \tHeLLo!how  \n Are yoU?  ": ["hello", "!", "how", "are", "you", "?"],
    "ah\u535a\u63a8zz": ["ah", "博", "推", "zz"],
    "": [],
    "unwantedX running": ["[UNK]", "runn", "##ing"],
    "h\u0005ello$`": ["hello", "$", "`"],
    "w" * 201: ["[UNK]"],
}


def test_official_cases_of_wordpiece_and_its_special_names(
    wordpiece: Tokenizer,
) -> None:
    for text, pieces in OFFICIAL_WORDPIECES.items():
        encoding = wordpiece.encode(text)
        assert (encoding.pieces, encoding.ids) == (
            pieces,
            [wordpiece.id(piece) for piece in pieces],
        )
    assert wordpiece.mask_id not in wordpiece.encode("[MASK]").ids
    encoding = wordpiece.encode("want [MASK]", "you", special_tokens=True)
    assert encoding.pieces == ["[CLS]", "want", "[MASK]", "[SEP]", "you", "[SEP]"]
    assert (
        encoding.segments == [0, 0, 0, 0, 1, 1]
        and wordpiece.decode(encoding.ids) == "want you"
    )
    assert [wordpiece.piece(k) for k in range(11) if not wordpiece.starts_word[k]] == [
        "##want",
        "##ed",
        "##ing",
    ]
    assert wordpiece.decode(wordpiece.encode("unwanted xx").ids) == "unwanted ⁇"
