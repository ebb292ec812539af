"""Encoding any string, alone or in batches, framed or not, with special tokens or not; and back."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.tokenizer import Tokenizer

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
@example("\x00 \ud800 \ufffe \u202eabc\u200d")
@example("e" + "\u0301" * 10_000)
@example("1,2,3,٣,[MASK] <unk>▁▁ 5,")
@settings(max_examples=500, deadline=None)
def test_any_string_encodes(own: Tokenizer, text: str) -> None:
    _require_sound(own, text)


@pytest.mark.slow
@given(ANY_TEXT)
@settings(max_examples=20_000, deadline=None)
def test_twenty_thousand_strings_encode(own: Tokenizer, text: str) -> None:
    _require_sound(own, text)


def _require_sound(own: Tokenizer, text: str) -> None:
    encoding = own.encode(text)
    normalized = len(own._model._normalizer.normalize(text))  # type: ignore[attr-defined]
    assert all(0 <= number < own.vocab_size for number in encoding.ids)
    assert len(encoding) <= normalized + 2
    assert len(encoding.pieces) == len(encoding.offsets) == len(encoding.ids)
    assert [own.id(piece) for piece in encoding.pieces] == encoding.ids


@pytest.mark.parametrize("text", ["a" * 1_000_000, "日" * 1_000_000, "1," * 500_000, " " * 100_000])
def test_long_texts_encode(own: Tokenizer, text: str) -> None:
    assert len(own.encode(text).ids) <= len(text) + 2


def test_batches_equal_single_texts_on_any_number_of_threads(own: Tokenizer, sentences: list[str]) -> None:
    single = [own.encode(text).ids for text in sentences]
    for num_threads in (1, 2, -1):
        batch = own.encode_batch(sentences, num_threads=num_threads)
        assert [encoding.ids for encoding in batch] == single
        assert own.encode_ids(sentences, num_threads=num_threads) == single


def test_threads_may_share_a_tokenizer(own: Tokenizer, sentences: list[str]) -> None:
    serial = [own.encode(text).offsets for text in sentences]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda text: own.encode(text).offsets, sentences)) == serial


def test_a_copied_tokenizer_encodes_the_same(own: Tokenizer, sentences: list[str]) -> None:
    twin = copy.deepcopy(own)
    assert twin.encode(sentences[0]).pieces == own.encode(sentences[0]).pieces
    assert twin.hash == own.hash


def test_frames_can_be_forced_and_forbidden(own: Tokenizer) -> None:
    a, b = own.encode("the miller").ids, own.encode("boats").ids
    cls, sep = own.cls_id, own.sep_id
    assert own.encode("the miller", frame=True).ids == [cls, *a, sep]
    assert own.encode("the miller", "boats").ids == [cls, *a, sep, *b, sep]
    pair = own.encode("the miller", "boats", frame=False)
    assert pair.ids == a + b
    assert pair.segments == [0] * len(a) + [1] * len(b)
    assert own.encode("[MASK]", special_tokens=True, frame=False).ids == [own.mask_id]


def test_special_names_are_text_until_asked_for(own: Tokenizer) -> None:
    text = "Jürgen [SEP]<pad> weighed [MASK]ripe <unk>"
    special = {own.pad_id, own.cls_id, own.sep_id, own.mask_id}
    assert special.isdisjoint(own.encode(text).ids)
    encoding = own.encode(text, special_tokens=True)
    names = ["[CLS]", "[SEP]", "<pad>", "[MASK]", "<unk>", "[SEP]"]
    assert [piece for piece in encoding.pieces if piece[0] in "[<"] == names
    slices = [text[start:end] for start, end in encoding.offsets]
    assert [shown for shown in slices if shown[:1] in ("[", "<")] == names[1:5]
    assert [own.id(piece) for piece in encoding.pieces] == encoding.ids


def test_batches_of_pairs_read_special_names(own: Tokenizer) -> None:
    texts, pairs = ["the [MASK]", "a captain"], ["boats", "[MASK]"]
    batch = own.encode_batch(texts, pairs, special_tokens=True)
    for encoding, text, pair in zip(batch, texts, pairs, strict=True):
        assert encoding.ids == own.encode(text, pair, special_tokens=True).ids
        assert encoding.ids.count(own.mask_id) == 1


def test_decoding_gives_the_normalized_text(own: Tokenizer, sentences: list[str]) -> None:
    for text in sentences:
        normalized = own._model._normalizer.normalize(text)  # type: ignore[attr-defined]
        assert own.decode(own.encode(text, text).ids) == f"{normalized} {normalized}"


def test_decoding_shows_the_unknown(own: Tokenizer) -> None:
    assert own.decode(own.encode("boats 日本").ids) == "boats  ⁇"


def test_an_encoding_is_brief_when_shown(own: Tokenizer) -> None:
    assert repr(own.encode("")) == "Encoding(0 ids: )"
    assert repr(own.encode("a " * 20)).endswith(", …)")


def test_pieces_and_ids_map_to_each_other(own: Tokenizer) -> None:
    assert [own.id(own.piece(k)) for k in range(own.vocab_size)] == list(range(own.vocab_size))
    assert own.id("no such piece") == own.unk_id


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda own: own.encode(7), "LB-210"),
        (lambda own: own.encode_batch(["a", None]), "LB-210"),
        (lambda own: own.encode_batch("abc"), "LB-216"),
        (lambda own: own.encode_ids("abc"), "LB-216"),
        (lambda own: own.encode_batch(["a", "b"], ["c"]), "LB-215"),
        (lambda own: own.decode([0, 300]), "LB-217"),
        (lambda own: own.piece(-1), "LB-217"),
    ],
)
def test_wrong_calls_are_refused(own: Tokenizer, call, code: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LitebertError, match=code):
        call(own)


def test_words_start_where_the_official_rule_says(own: Tokenizer) -> None:
    starts = dict(zip(map(own.piece, range(own.vocab_size)), own.starts_word, strict=True))
    assert starts["▁"] and starts["("] and starts["."] and starts["[MASK]"] and starts["3"]
    assert not starts["s"] and not starts["r"]
    assert starts["'"]


def test_control_sentencepiece_itself_refuses_a_lone_surrogate(own: Tokenizer) -> None:
    text = "a \ud800"
    assert own.encode(text).ids == own.encode("a \ufffd").ids
    with pytest.raises((RuntimeError, UnicodeEncodeError)):
        own._model._processor.encode(text)  # type: ignore[attr-defined]
