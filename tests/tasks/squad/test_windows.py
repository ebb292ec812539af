"""Windows: the official golden example, no question dropped, every answer found again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.metrics import normalized_answer
from litebert.tasks.kinds.spans import GoldAnswer, SpanAnswering, SpanExample, SpanFeature, most_context, windows_of
from litebert.tasks.named.squad import DATASETS
from litebert.tokenizer import Tokenizer

GOLDEN_IDS = (
    "2 76 23 14 6241 22781 18 25425 520 60 3 14 6241 22781 18 25425 13 5 1430 9 137 15 3165 264 6 "
    "23 520 19 123 4974 15 19 7013 9 32 63 8819 2724 9 3"
)
GOLDEN = SpanExample(
    "golden",
    "When was the Café Königsplatz opened?",
    "The Café  Königsplatz (est. 1,905) was opened in May 1905, in Munich. It has 2,000 seats.",
    (GoldAnswer("May 1905", 49),),
)
FEW = settings(deadline=None, max_examples=60)


def _windows(
    example: SpanExample, tokenizer: Tokenizer, *, max_length: int = 64, training: bool = True
) -> list[SpanFeature]:
    family = SpanAnswering(doc_stride=8)
    features = family.features([example], tokenizer, max_length=max_length, training=training)
    return [feature for feature in features if isinstance(feature, SpanFeature)]


def _found(example: SpanExample, window: SpanFeature) -> str:
    """Cut the text of a window's target out of the context, as decoding does."""
    assert window.target is not None
    first, last = (int(place) - window.first for place in window.target[:2])
    return example.context[window.offsets[first, 0] : window.offsets[last, 1]]


def _asked(context: str, text: str) -> SpanExample:
    return SpanExample("q", "What?", context, (GoldAnswer(text, context.index(text)),))


def test_the_official_golden_example_has_its_ids_and_answer(official: Tokenizer) -> None:
    (window,) = _windows(GOLDEN, official)
    assert window.ids[0] == [int(number) for number in GOLDEN_IDS.split()]
    assert window.segments[0] == [0] * 11 + [1] * 29
    assert window.target is not None
    assert window.target.tolist() == [28, 29, 0]
    assert _found(GOLDEN, window) == "May 1905"


@pytest.mark.parametrize(
    ("context", "text"),
    [
        ("The naïve café in Århus was full.", "naïve café"),
        ("Die Straße nach Köln.", "Köln"),
        ("A cafe\u0301 by the sea.", "cafe\u0301"),
        ("The ﬁrst ﬂoor is let.", "ﬁrst ﬂoor"),
        ("He said “never again” and left.", "never again"),
        ("He said “never again” and left.", "“never again”"),
        ("It took 1,905, or 2,000, days.", "1,905"),
        ("It took 1,905, or 2,000, days.", "2,000"),
        ("One  two\n\nthree\tfour.", "two\n\nthree"),
        ("  Leading and  trailing  ", "trailing"),
        ("The name 東京 is short.", "東京"),
        ("Half is ½, a third ⅓.", "½"),
        ("x\u200by and \U0001f600 smiles.", "\U0001f600"),
        ("U.S. No. 5 № 6 (№7)", "№ 6"),
        ("İstanbul and Ürümqi", "İstanbul"),
        ("50% of €20", "50%"),
    ],
)
def test_an_answer_is_found_again_letter_by_letter(official: Tokenizer, context: str, text: str) -> None:
    example = _asked(context, text)
    (window,) = _windows(example, official)
    assert normalized_answer(_found(example, window)) == normalized_answer(text)
    assert text in _found(example, window)


@pytest.mark.parametrize(
    ("context", "text", "piece"),
    [("In 1905 they left.", "05", "1905"), ("東京は日本の首都です。", "日本", "東京は日本の首都です。")],
)
def test_an_answer_inside_a_piece_gets_the_whole_piece(
    official: Tokenizer, context: str, text: str, piece: str
) -> None:
    (window,) = _windows(_asked(context, text), official)
    assert _found(_asked(context, text), window) == piece


@FEW
@given(st.text(min_size=1, max_size=60), st.integers(0, 59), st.integers(1, 30))
def test_any_piece_of_any_text_lies_inside_its_target(
    tokenizer: Tokenizer, context: str, start: int, length: int
) -> None:
    start %= len(context)
    text = context[start : start + length]
    assume(text.strip())
    example = SpanExample("q", "Who?", context, (GoldAnswer(text, start),))
    windows = _windows(example, tokenizer, max_length=200)
    for window in windows:
        assert window.target is not None
        first, last = (int(place) - window.first for place in window.target[:2])
        assert 0 <= first <= last < len(window.offsets)
        assert _spelled(text, tokenizer) in _spelled(_found(example, window), tokenizer)


@FEW
@given(st.integers(0, 300), st.integers(1, 60), st.integers(1, 60))
def test_windows_cover_a_context_without_gaps(pieces: int, room: int, stride: int) -> None:
    windows = windows_of(pieces, room=room, doc_stride=stride)
    covered = np.zeros(pieces, dtype=int)
    for start, stop in windows:
        assert 0 < stop - start <= room
        covered[start:stop] += 1
    assert covered.all() if pieces else not windows
    assert [start for start, _ in windows] == [n * min(room, stride) for n in range(len(windows))]
    assert sum(stop == pieces for _, stop in windows) == (1 if pieces else 0)


@FEW
@given(st.integers(1, 500), st.integers(1, 300), st.integers(1, 200))
@example(430, 300, 128)
def test_each_piece_counts_in_the_window_that_shows_most_around_it(pieces: int, room: int, stride: int) -> None:
    windows = windows_of(pieces, room=room, doc_stride=stride)
    chosen = most_context(windows, pieces)
    for piece in range(pieces):
        scores = [
            min(piece - start, stop - 1 - piece) + 0.01 * (stop - start) if start <= piece < stop else -1.0
            for start, stop in windows
        ]
        assert chosen[piece] == scores.index(max(scores))


def test_windows_without_the_answer_stay_and_point_to_cls(tokenizer: Tokenizer, voyages: list[SpanExample]) -> None:
    windows = _windows(voyages[0], tokenizer, max_length=32)
    targets = [window.target.tolist() for window in windows if window.target is not None]
    assert len(targets) == len(windows) > 2
    assert {tuple(target) for target in targets if target[2]} == {(0, 0, 1)}
    assert any(not target[2] for target in targets)


def test_windows_to_answer_have_no_target_and_no_more_pieces_than_allowed(
    tokenizer: Tokenizer, voyages: list[SpanExample]
) -> None:
    windows = _windows(voyages[0], tokenizer, max_length=32, training=False)
    assert all(window.target is None and window.num_tokens <= 32 for window in windows)
    assert sum(int(window.has_most_context.sum()) for window in windows) == len(
        tokenizer.encode(voyages[0].context).ids
    )


def test_a_question_without_room_for_its_context_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(LitebertError, match="LB-807"):
        _windows(SpanExample("q", "Who? " * 50, "Ada."), tokenizer, training=False)


@pytest.mark.parametrize("answers", [None, (GoldAnswer("Ada", 0), GoldAnswer("Ada", 0))])
def test_training_needs_one_answer(tokenizer: Tokenizer, answers: tuple[GoldAnswer, ...] | None) -> None:
    with pytest.raises(LitebertError, match="LB-806"):
        _windows(SpanExample("q", "Who?", "Ada left.", answers), tokenizer)


def test_real_answers_are_found_again_unless_they_end_inside_a_piece(official: Tokenizer, real_data: Path) -> None:
    asked = DATASETS["squad"].read(real_data / "squad", "dev")[::7]
    examples = [replace(one, answers=(one.answers or ())[:1]) for one in asked]
    features = SpanAnswering().features(examples, official, max_length=384, training=True)
    windows = [one for one in features if isinstance(one, SpanFeature) and one.target is not None]
    seen, num_cut = set(), 0
    for window in windows:
        example = examples[window.example]
        if window.target is None or window.target[2]:
            continue
        assert example.answers is not None
        text, found = example.answers[0].text, _found(example, window)
        seen.add(example.id)
        assert text in found
        if normalized_answer(found) != normalized_answer(text):
            num_cut += 1
            assert not _is_on_borders(example, official)
    assert len(seen) == len(examples)
    assert num_cut <= 0.004 * len(examples)


def _spelled(text: str, tokenizer: Tokenizer) -> str:
    """Leave out spaces and what the tokenizer passes over: control characters."""
    return "".join(character for character in text if tokenizer.encode(character).ids)


def _is_on_borders(example: SpanExample, tokenizer: Tokenizer) -> bool:
    """Tell whether the answer starts where a piece starts and ends where one ends."""
    assert example.answers is not None
    (answer,) = example.answers
    starts, stops = zip(*tokenizer.encode(example.context).offsets, strict=True)
    return answer.start in starts and answer.start + len(answer.text) in stops
