"""Decoding equals a slow search over all pairs, and the official files byte for byte in form."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from litebert.tasks.kinds.spans import (
    EMPTY,
    NO_SPAN,
    ConditionalSpanAnswering,
    ProposedSpan,
    SpanAnswer,
    SpanAnswering,
    SpanExample,
    SpanFeature,
    proposals,
)
from litebert.tasks.named.squad import DATASETS

CONTEXT = "Ada met Bob, and Ada left with Bob at noon."
FEW = settings(deadline=None, max_examples=40)


def _pieces() -> list[tuple[int, int]]:
    """Give the words of the context as pieces."""
    ends = [place for place, letter in enumerate(CONTEXT + " ") if letter == " "]
    return list(zip([0, *[end + 1 for end in ends]], ends, strict=False))


def _window(start: int, stop: int, counts: range) -> SpanFeature:
    """Show some words after a question of two pieces; those in `counts` have most context here."""
    offsets = np.array(_pieces(), dtype=np.int32)[start:stop]
    length = 4 + len(offsets) + 1
    most = np.array([place in counts for place in range(start, stop)])
    return SpanFeature(
        ids=([0] * length,), segments=([0] * length,), target=None, example=0, offsets=offsets, has_most_context=most
    )


WINDOWS = (_window(0, 6, range(5)), _window(3, 10, range(5, 10)))


def _searched(logits: tuple[NDArray[np.float32], ...], *, number: int, longest: int) -> Iterator[tuple[float, str]]:
    """Try every pair of positions, as the official loops do."""
    for window, (start, end) in zip(WINDOWS, logits, strict=True):
        starts = sorted(range(len(start)), key=lambda i: -start[i])[:number]
        ends = sorted(range(len(end)), key=lambda i: -end[i])[:number]
        for first in starts:
            for last in ends:
                is_inside = window.first <= first <= last < window.first + len(window.offsets)
                if not is_inside or last - first + 1 > longest:
                    continue
                if window.has_most_context[first - window.first]:
                    begin = window.offsets[first - window.first, 0]
                    stop = window.offsets[last - window.first, 1]
                    yield float(start[first]) + float(end[last]), CONTEXT[begin:stop]


@FEW
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 6))
def test_proposals_are_those_of_a_search_over_all_pairs(seed: int, number: int, longest: int) -> None:
    random = np.random.Generator(np.random.Philox(seed))
    logits = tuple(random.integers(-3, 4, (2, len(window.ids[0]))).astype(np.float32) for window in WINDOWS)
    family = SpanAnswering(num_starts=number, num_ends=number, max_answer_length=longest, n_best=4)
    rows = [family.likely(*pair) for pair in logits]
    found = proposals(CONTEXT, zip(WINDOWS, rows, strict=True), n_best=4, nothing=EMPTY)
    searched: dict[str, float] = {}
    for score, text in sorted(_searched(logits, number=number, longest=longest), key=lambda p: -p[0]):
        searched.setdefault(text, score)
    expected = list(searched.items())[:4] or [("empty", 0.0)]
    assert [(span.text, span.score) for span in found] == expected
    assert sum(span.probability for span in found) == pytest.approx(1.0)


def test_a_start_counts_only_where_it_has_most_context() -> None:
    shared = np.array([[4 + 5, 4 + 5, 9, 9]], dtype=np.float32)  # word 5 in the first window
    (found,) = proposals(CONTEXT, [(WINDOWS[0], shared)], n_best=20, nothing=EMPTY)
    assert found == EMPTY
    shared = np.array([[4 + 2, 4 + 2, 9, 9]], dtype=np.float32)  # word 5 in the second window
    (found,) = proposals(CONTEXT, [(WINDOWS[1], shared)], n_best=20, nothing=EMPTY)
    assert (found.text, found.start, found.stop) == ("left", 21, 25)


def test_one_text_in_two_places_is_proposed_once_where_it_scores_best() -> None:
    rows = np.array([[4, 4, 1, 1], [4 + 4, 4 + 4, 2, 2]], dtype=np.float32)
    (found,) = proposals(CONTEXT, [(WINDOWS[0], rows)], n_best=20, nothing=EMPTY)
    assert (found.text, found.start, found.probability) == ("Ada", 17, 1.0)


def test_without_windows_there_is_no_answer() -> None:
    assert proposals(" ", [], n_best=20, nothing=EMPTY) == (EMPTY,)
    assert proposals(" ", [], n_best=20, nothing=NO_SPAN) == (NO_SPAN,)


def test_an_ensemble_averages_a_span_over_the_models_that_propose_it() -> None:
    both = SpanAnswer("a", (ProposedSpan("a", 0, 1, 2.0, 2.0), ProposedSpan("b", 2, 3, 1.0, 1.0)), -1.0)
    alone = SpanAnswer("b", (ProposedSpan("b", 2, 3, 3.0, 4.0), NO_SPAN), 2.0)
    (answer,) = ConditionalSpanAnswering().averaged([[both], [alone]])
    found, null_score = answer.n_best, answer.null_score
    assert [(span.text, span.start_score, span.end_score) for span in found] == [("b", 2.0, 2.5), ("a", 2.0, 2.0)]
    assert null_score == 0.5
    assert sum(span.probability for span in found) == pytest.approx(1.0)


def test_one_text_at_two_places_stays_apart_until_it_is_ranked() -> None:
    one = SpanAnswer("Ada", (ProposedSpan("Ada", 0, 3, 1.0, 1.0),))
    other = SpanAnswer("Ada", (ProposedSpan("Ada", 17, 20, 0.0, 1.0),))
    (answer,) = SpanAnswering().averaged([[one], [other]])
    assert [(span.start, span.score) for span in answer.n_best] == [(0, 2.0)]


def test_files_have_the_form_of_the_official_ones() -> None:
    examples = [SpanExample("q1", "Who?", CONTEXT), SpanExample("q2", "Né?", CONTEXT)]
    answers = [
        SpanAnswer("Ada", (ProposedSpan("Ada", 0, 3, 1.5, 2.0, 0.75), ProposedSpan("é", 4, 7, 1.0, 1.0, 0.25))),
        SpanAnswer("empty", (EMPTY,)),
    ]
    files = DATASETS["squad"].submission("dev", examples, answers)
    assert files["predictions.json"] == '{\n    "q1": "Ada",\n    "q2": "empty"\n}\n'
    assert json.loads(files["nbest_predictions.json"])["q1"][1] == {
        "text": "é",
        "probability": 0.25,
        "start_log_prob": 1.0,
        "end_log_prob": 1.0,
    }
    assert "null_odds.json" not in files
