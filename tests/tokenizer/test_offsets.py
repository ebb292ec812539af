"""Offsets: in order, inside the text, and slicing out what each piece spells."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert.tokenizer import Tokenizer
from litebert.tokenizer.normalize import Normalizer

ANY_TEXT = st.text(st.characters(exclude_categories=()))
WORDS = st.text("abcdefgmnorstuvwéüÖşñç ,.()-'\"0123456789\t\n\u0301日", max_size=60)


@given(ANY_TEXT)
@example("½ №  ﬁ\u0301 \u200b\u200bx\x01y\x00 e\u0301\u0301\t, \u1112\u1161\u11ab \u3000")
@settings(max_examples=300, deadline=None)
def test_offsets_are_ordered_and_inside_the_text(own: Tokenizer, text: str) -> None:
    offsets = own.encode(text).offsets
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)
    assert [end for _, end in offsets] == sorted(end for _, end in offsets)


@given(WORDS)
@example("In 2010, it was 1,905, and 5,")
@example("Jürgen\u0301  cafe\u0301.")
@settings(max_examples=500, deadline=None)
def test_ordinary_text_slices_to_the_pieces(own: Tokenizer, text: str) -> None:
    encoding, end = own.encode(text), 0
    for piece, (start, stop) in zip(encoding.pieces, encoding.offsets, strict=True):
        assert Normalizer().normalize(text[start:stop]) == piece.removeprefix("▁")
        assert start >= end
        end = stop


def test_a_word_is_sliced_without_the_space_before_it(own: Tokenizer) -> None:
    text = "the  miller\n weighed"
    encoding = own.encode(text)
    words = [text[s:e] for p, (s, e) in zip(encoding.pieces, encoding.offsets, strict=True) if p[0] == "▁" != p]
    assert all(word and not word[0].isspace() for word in words)


def test_a_lone_space_piece_has_an_empty_span_before_its_word(own: Tokenizer) -> None:
    encoding = own.encode("boats 日本")
    assert encoding.pieces[-2:] == ["▁", "日本"]
    assert encoding.offsets[-2:] == [(6, 6), (6, 8)]


def test_pieces_of_one_character_share_its_span(own: Tokenizer) -> None:
    encoding = own.encode("x½")
    assert {span for piece, span in zip(encoding.pieces, encoding.offsets, strict=True) if piece in "12⁄"} == {(1, 2)}


def test_the_second_text_has_offsets_of_its_own(own: Tokenizer) -> None:
    encoding = own.encode("boats", "boats")
    half = len(encoding) // 2
    assert encoding.offsets[1:half] == encoding.offsets[half + 1 : -1]
    assert encoding.offsets[0] == encoding.offsets[half] == encoding.offsets[-1] == (0, 0)


def test_special_names_shift_what_follows(own: Tokenizer) -> None:
    text = "the [MASK] boats"
    encoding = own.encode(text, special_tokens=True)
    assert "".join(text[s:e] for s, e in encoding.offsets) == "the[MASK]boats"


def test_real_paragraphs_slice_to_words(official: Tokenizer, paragraphs: list[str]) -> None:
    for text in paragraphs[:300]:
        encoding = official.encode(text)
        spelled = "".join(Normalizer().normalize(text[s:e]) for s, e in encoding.offsets)
        assert spelled == "".join(encoding.pieces).replace("▁", "")


def test_long_texts_have_the_offsets_of_their_parts(own: Tokenizer) -> None:
    part = "In 1905, Jürgen saw 2010, ½ boats \u0301 and\ttwo  ﬁne 北京 cats. "
    text = part * 4_000  # several parts are normalised apart
    encoding = own.encode(text)
    once = own.encode(part + part)
    assert len(text) > 3 * (1 << 16)
    size = len(own.encode(part).ids)
    repeats = encoding.offset_array.reshape(4_000, size, 2) - encoding.offset_array[:size]
    assert (repeats == (np.arange(4_000) * len(part))[:, None, None]).all()
    assert encoding.offsets[: 2 * size] == once.offsets
    assert encoding.pieces[: 2 * size] == once.pieces


def test_a_context_of_five_megabytes_is_encoded_in_bounded_memory_and_linear_time(
    own: Tokenizer, tmp_path: Path
) -> None:
    own.save(tmp_path)
    code = (
        "import resource, time\nfrom litebert.tokenizer import Tokenizer\n"
        f"tokenizer = Tokenizer.load({str(tmp_path)!r})\n"
        "part = 'The quick brown fox jumps over the lazy dog, naïve as ever. '\n"
        "def seconds(repeats):\n"
        "    text, begun = part * repeats, time.process_time()\n"
        "    assert len(tokenizer.encode(text).offset_array)\n"
        "    return time.process_time() - begun\n"
        "short = seconds(10_000)\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used(); long = seconds(80_000)\n"
        "print(long / short / 8, used() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ratio, kibibytes = map(float, done.stdout.split())
    assert ratio < 1.6
    assert kibibytes < 350 << 10


def test_control_offsets_of_the_normalized_text_do_not_slice_the_original(own: Tokenizer) -> None:
    text = "½ ½ the miller saw boats"
    normalized = own._model._normalizer.normalize(text)  # type: ignore[attr-defined]
    assert normalized != text
    theirs, ours = own.encode(normalized).offsets[-1], own.encode(text).offsets[-1]
    assert text[slice(*ours)] == normalized[slice(*theirs)]
    assert text[slice(*theirs)] != normalized[slice(*theirs)]
