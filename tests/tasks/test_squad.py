"""SQuAD: windows as the official code cuts them, the best spans as brute force finds
them, losses, thresholds (test_squad_files.py: its files).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from litebert.errors import LitebertError
from litebert.metrics import normalize_answer
from litebert.nn import AlbertForTask
from litebert.tasks.kinds import spans
from litebert.tasks.kinds.family import Family, Feature, collate, targets_of
from litebert.tasks.kinds.spans import (
    GoldAnswer,
    ProposedSpan,
    SpanAnswer,
    SpanAnswering,
    SpanExample,
)
from litebert.tasks.named import DATASETS
from litebert.tokenizer import Tokenizer, train_tokenizer
from tests.networks import config_for
from tests.tasks.voyages import VOYAGES


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [text for one in VOYAGES for text in (one.context, one.question)]
    return Tokenizer.from_model(train_tokenizer(texts, vocab_size=80))


BOTH = pytest.mark.parametrize(
    "family", [SpanAnswering(), spans.ConditionalSpanAnswering()]
)
FEW = settings(deadline=None, max_examples=60)


# ---- windows -------------------------------------------------------------------------


def _windows(
    one: SpanExample, tokenizer: Tokenizer, *, length: int = 64, training: bool = True
) -> list[Any]:
    return list(
        SpanAnswering(doc_stride=8).windows(
            [one], tokenizer, max_length=length, training=training
        )
    )


def _found(example: SpanExample, window: spans.SpanFeature) -> str:
    assert window.target is not None
    first, last = (int(place) - window.first for place in window.target[:2])
    assert 0 <= first <= last < len(window.offsets)
    return example.context[window.offsets[first, 0] : window.offsets[last, 1]]


@pytest.mark.parametrize(
    ("context", "text"),
    [
        (
            "The Café  Königsplatz (est. 1,905) was opened in May 1905, in Munich.",
            "May 1905",
        ),
        ("A cafe\u0301 by the sea.", "cafe\u0301"),
        ("The ﬁrst ﬂoor is let.", "ﬁrst ﬂoor"),
        ("He said “never again” and left.", "“never again”"),
        ("One  two\n\nthree\tfour.", "two\n\nthree"),
        ("x\u200by and \U0001f600 smiles.", "\U0001f600"),
        ("U.S. No. 5 № 6 (№7)", "№ 6"),
        ("İstanbul and Ürümqi", "İstanbul"),
        ("In 1905 they left.", "05 in 1905"),  # inside a piece: the whole piece
        ("東京は日本の首都です。", "日本 in 東京は日本の首都です。"),
    ],
)
def test_the_target_of_an_answer_decodes_to_its_text(
    official: Tokenizer, context: str, text: str
) -> None:
    text, _, piece = text.partition(" in ")
    asked = SpanExample("q", "What?", context, (GoldAnswer(text, context.index(text)),))
    (window,) = _windows(asked, official)
    encoding = official.encode("What?", context)
    assert (window.ids[0], window.segments[0]) == (encoding.ids, encoding.segments)
    assert normalize_answer(_found(asked, window)) == normalize_answer(piece or text)
    assert text in _found(asked, window)


NUM_PIECES = st.integers(0, 300)
ROOMS = st.integers(1, 300)
STRIDES = st.integers(1, 200)


@FEW
@given(NUM_PIECES, ROOMS, STRIDES)
@example(430, 300, 128)
def test_windows_leave_no_gap(num_pieces: int, room: int, stride: int) -> None:
    windows = spans.windows_of(num_pieces, room=room, doc_stride=stride)
    step = min(room, stride)
    for number, (start, stop) in enumerate(windows):
        assert start == number * step
        assert 0 < stop - start <= room

    stops = [stop for _, stop in windows]
    # the last window alone reaches the end
    assert stops.count(num_pieces) == (1 if num_pieces else 0)


@FEW
@given(NUM_PIECES, ROOMS, STRIDES)
@example(430, 300, 128)
def test_a_piece_counts_where_its_context_is_largest(
    num_pieces: int, room: int, stride: int
) -> None:
    windows = spans.windows_of(num_pieces, room=room, doc_stride=stride)
    chosen = spans.most_context(windows, num_pieces)
    for piece in range(num_pieces):
        scores = [_context(piece, start, stop) for start, stop in windows]
        assert max(scores) > 0  # it is in a window
        assert chosen[piece] == scores.index(max(scores))


def _context(piece: int, start: int, stop: int) -> float:
    """Return the official score of a piece in a window: the pieces on its shorter side,
    and a little for a long window; -1 outside.
    """
    if not start <= piece < stop:
        return -1.0
    return min(piece - start, stop - 1 - piece) + 0.01 * (stop - start)


def test_windows_without_the_answer_are_kept_for_training(tokenizer: Tokenizer) -> None:
    windows = _windows(VOYAGES[0], tokenizer, length=32)
    assert len(windows) > 2
    num_with_answer = 0
    for window in windows:
        assert window.target is not None
        first, last, is_impossible = window.target.tolist()
        if is_impossible:
            assert (first, last, is_impossible) == (0, 0, 1)
        else:
            num_with_answer += 1
    assert 0 < num_with_answer < len(windows)


def test_windows_of_a_question_to_answer_have_no_targets(tokenizer: Tokenizer) -> None:
    windows = _windows(VOYAGES[0], tokenizer, length=32, training=False)
    for window in windows:
        assert window.target is None
        assert window.num_tokens <= 32


def test_each_piece_of_a_context_counts_in_one_window(tokenizer: Tokenizer) -> None:
    windows = _windows(VOYAGES[0], tokenizer, length=32, training=False)
    num_pieces = len(tokenizer.encode(VOYAGES[0].context).ids)
    assert sum(int(window.has_most_context.sum()) for window in windows) == num_pieces


ADA = GoldAnswer("Ada", 0)


@pytest.mark.parametrize("answers", [None, (ADA, ADA)], ids=["none", "two"])
def test_a_question_without_one_answer_cannot_be_learned(
    answers: tuple[GoldAnswer, ...] | None, tokenizer: Tokenizer
) -> None:
    with pytest.raises(LitebertError, match="LB-806"):
        _windows(SpanExample("q", "Who?", "Ada left.", answers), tokenizer)


def test_a_question_that_leaves_no_room_for_its_context_is_refused(
    tokenizer: Tokenizer,
) -> None:
    question = SpanExample("q", "Who? " * 50, "Ada left.")
    with pytest.raises(LitebertError, match="LB-807"):
        _windows(question, tokenizer, training=False)


def test_targets_of_real_answers_decode_unless_they_end_inside_a_piece(
    official: Tokenizer, real_data: Path
) -> None:
    asked = DATASETS["squad"].read(real_data / "squad", "dev")[::7]
    examples = [replace(one, answers=(one.answers or ())[:1]) for one in asked]
    seen = set()
    num_cut = 0
    for window in SpanAnswering().windows(
        examples, official, max_length=384, training=True
    ):
        if window.target is None or window.target[2]:
            continue
        example = examples[window.example]
        (answer,), place = example.answers or (), _found(example, window)
        seen.add(example.id)
        assert answer.text in place
        if normalize_answer(place) != normalize_answer(answer.text):
            num_cut += 1  # it starts or ends inside a piece
            starts, stops = zip(*official.encode(example.context).offsets, strict=True)
            assert (
                answer.start not in starts
                or answer.start + len(answer.text) not in stops
            )
    assert len(seen) == len(examples) and num_cut <= 0.004 * len(examples)


# ---- decoding ------------------------------------------------------------------------

CONTEXT = "Ada met Bob, and Ada left with Bob at noon."


def _window(start: int, stop: int, counts: range) -> spans.SpanFeature:
    """Make a window of some words of the context, after two pieces; those in `counts`
    have most context here.
    """
    ends = [place for place, letter in enumerate(CONTEXT + " ") if letter == " "]
    words = list(zip([0, *[end + 1 for end in ends]], ends, strict=False))[start:stop]
    length = 4 + len(words) + 1
    most = np.array([place in counts for place in range(start, stop)])
    shown = {"offsets": np.array(words, dtype=np.int32), "has_most_context": most}
    return spans.SpanFeature(
        ids=([0] * length,), segments=([0] * length,), target=None, example=0, **shown
    )


WINDOWS = (_window(0, 6, range(5)), _window(3, 10, range(5, 10)))


def _search(
    logits: tuple[NDArray[np.float32], ...], *, number: int, longest: int
) -> Iterator[tuple[float, str, int]]:
    """Try every pair of positions, as the official loops do."""
    for window, (start, end) in zip(WINDOWS, logits, strict=True):
        starts = sorted(range(len(start)), key=lambda i: -start[i])[:number]
        ends = sorted(range(len(end)), key=lambda i: -end[i])[:number]
        for first, last in ((first, last) for first in starts for last in ends):
            is_inside = (
                window.first <= first <= last < window.first + len(window.offsets)
            )
            if not is_inside or last - first + 1 > longest:
                continue
            if window.has_most_context[first - window.first]:
                begin = window.offsets[first - window.first, 0]
                stop = window.offsets[last - window.first, 1]
                yield float(start[first]) + float(end[last]), CONTEXT[begin:stop], begin


@FEW
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 6))
def test_proposals_are_those_of_a_search_over_all_pairs(
    seed: int, number: int, longest: int
) -> None:
    random = np.random.Generator(np.random.Philox(seed))
    logits = tuple(
        random.integers(-3, 4, (2, len(window.ids[0]))).astype(np.float32)
        for window in WINDOWS
    )
    family = SpanAnswering(
        num_starts=number, num_ends=number, max_answer_length=longest, n_best=4
    )
    rows = family.outputs(
        lambda _: torch.from_numpy(np.concatenate(logits, axis=1).T), collate(WINDOWS)
    )  # type: ignore[arg-type]
    (answered,) = family.answers([SpanExample("q", "Who?", CONTEXT)], WINDOWS, rows)
    # a text in two places is proposed once, where it scores best
    searched: dict[str, tuple[str, float, int]] = {}
    for score, text, begin in sorted(
        _search(logits, number=number, longest=longest), key=lambda p: -p[0]
    ):
        searched.setdefault(text, (text, score, begin))
    expected = list(searched.values())[:4] or [("empty", 0.0, 0)]
    assert [(span.text, span.score, span.start) for span in answered.n_best] == expected
    assert sum(span.probability for span in answered.n_best) == pytest.approx(1.0)


def test_an_ensemble_averages_a_span_over_the_models_that_propose_it() -> None:
    both = SpanAnswer(
        (ProposedSpan("a", 0, 1, 2.0, 2.0), ProposedSpan("b", 2, 3, 1.0, 1.0)), -1.0
    )
    alone = SpanAnswer((ProposedSpan("b", 2, 3, 3.0, 4.0), spans.NO_SPAN), 2.0)
    answer = spans.ConditionalSpanAnswering().averaged([both, alone])
    scores = [(span.text, span.start_score, span.end_score) for span in answer.n_best]
    assert scores == [("b", 2.0, 2.5), ("a", 2.0, 2.0)]
    assert answer.null_score == 0.5
    assert sum(span.probability for span in answer.n_best) == pytest.approx(1.0)


def test_one_text_at_two_places_stays_apart_until_it_is_ranked() -> None:
    better = SpanAnswer((ProposedSpan("Ada", 0, 3, 1.0, 1.0),))
    worse = SpanAnswer((ProposedSpan("Ada", 17, 20, 0.0, 1.0),))
    answer = SpanAnswering().averaged([better, worse])
    assert [(span.start, span.score) for span in answer.n_best] == [(0, 2.0)]


@pytest.mark.parametrize(
    ("family", "text", "null_score"),
    [
        pytest.param(SpanAnswering(), "empty", None, id="always answers"),
        pytest.param(spans.ConditionalSpanAnswering(), "", 1e6, id="or has none"),
    ],
)
def test_a_question_on_an_empty_context_is_answered_as_officially(
    family: SpanAnswering, text: str, null_score: float | None
) -> None:
    (answer,) = family.answers([SpanExample("q", "Who?", " ")], [], [])
    assert answer.text == text
    assert answer.null_score == null_score

    merged = family.merge([])
    assert merged.text == text
    assert merged.null_score == null_score


# ---- losses, the beam and rows -------------------------------------------------------


def _network(
    family: Family[SpanExample, SpanAnswer], tokenizer: Tokenizer
) -> AlbertForTask:
    config = config_for(tokenizer, max_position_embeddings=96)
    return AlbertForTask(
        config, family.head, generator=torch.Generator().manual_seed(0)
    ).eval()


def _scored(
    network: AlbertForTask, feature: Feature, starts: Tensor | int
) -> spans.ConditionalSpans:
    last = len(feature.ids[0]) - 1
    allowed = torch.tensor(
        [[n == 0 or (s == 1 and n < last) for n, s in enumerate(feature.segments[0])]]
    )
    return network.head(network.albert(collate([feature]))[None], allowed, starts)


@BOTH
def test_the_loss_is_half_of_the_official_cross_entropies(
    family: SpanAnswering, tokenizer: Tokenizer
) -> None:
    network = _network(family, tokenizer)
    feature, *_ = family.features(VOYAGES[:1], tokenizer, max_length=96, training=True)
    assert feature.target is not None
    start, end, is_impossible = map(int, feature.target)
    assert not is_impossible
    batch = collate([feature])
    if isinstance(family, spans.ConditionalSpanAnswering):
        scored = _scored(network, feature, torch.tensor([[start]]))
        no_answer = -(1 - scored.no_answer[0].sigmoid()).log()
        expected = (no_answer - scored.start[0, start] - scored.end[0, 0, end]) / 2
    else:
        logits = network(batch).log_softmax(0)
        expected = -(logits[start, 0] + logits[end, 1]) / 2
    torch.testing.assert_close(
        family.losses(network, batch, targets_of([feature]))[0], expected
    )


@torch.inference_mode()
def test_the_official_beam_is_five_starts_with_five_ends_each(
    tokenizer: Tokenizer,
) -> None:
    family = spans.ConditionalSpanAnswering(max_answer_length=1_000)
    network = _network(family, tokenizer)
    feature, *_ = family.features(VOYAGES[:1], tokenizer, max_length=96, training=False)
    (rows,) = family.outputs(network, collate([feature]))
    # the first row is the score of no answer, the others (start, end, score, score)
    no_answer, *proposals = rows
    scores = {(int(row[0]), int(row[1])): float(row[2] + row[3]) for row in proposals}

    scored = _scored(network, feature, 5)
    expected = dict[tuple[int, int], float]()
    for number, start in enumerate(scored.chosen[0]):
        for end in scored.end[0, number].topk(5).indices:
            if end >= start:
                score = scored.start[0, start] + scored.end[0, number, end]
                expected[int(start), int(end)] = float(score)
    assert scores == pytest.approx(expected)
    assert no_answer[2] == pytest.approx(float(scored.no_answer[0]))


# ---- when no answer is given ---------------------------------------------------------


def _questions(
    rows: list[tuple[bool, float]],
) -> tuple[list[SpanExample], list[SpanAnswer]]:
    """Return questions and answers of rows (is it impossible, null score)."""
    ada = (GoldAnswer("Ada", 0),)
    examples = list[SpanExample]()
    answers = list[SpanAnswer]()
    for number, (is_impossible, null_score) in enumerate(rows):
        gold = () if is_impossible else ada
        examples.append(SpanExample(str(number), "Who?", "Ada left.", gold))
        proposed = ProposedSpan("Ada", 0, 3, 0.0, 0.0)
        answers.append(SpanAnswer((proposed,), null_score))
    return examples, answers


class Threshold(NamedTuple):
    """Rows, and what the official threshold and the best one make of them."""

    rows: list[tuple[bool, float]]  # is it impossible, null score
    official: float
    texts: list[str]  # that are submitted with the official one
    f1: float  # with the official one
    best: float


THRESHOLDS = {
    "the question that set it stays unanswered": Threshold(
        [(False, -3.0), (False, -2.0), (True, 0.5), (True, 4.0)],
        official=-2.0,
        texts=["Ada", "", "", ""],
        f1=75.0,
        best=-0.75,
    ),
    "above 1 is no answer, whatever was tuned": Threshold(
        [(False, 2.0), (False, 3.0), (True, 4.0)],
        official=3.0,
        texts=["Ada", "", ""],
        f1=100 / 3,
        best=3.5,
    ),
    "negative where nothing is best": Threshold(
        [(True, -2.0), (True, 3.0)],
        official=0.0,
        texts=["Ada", ""],
        f1=50.0,
        best=-2.0,
    ),
}
EACH_THRESHOLD = pytest.mark.parametrize("case", THRESHOLDS.values(), ids=THRESHOLDS)


@EACH_THRESHOLD
def test_the_official_threshold_has_its_quirks(case: Threshold) -> None:
    examples, answers = _questions(case.rows)
    tuned = spans.tune_threshold(examples, answers)
    assert [answer.text for answer in tuned] == case.texts

    measures = spans.ConditionalSpanAnswering().measures(examples, answers)
    assert measures["threshold"] == case.official
    assert measures["f1"] == pytest.approx(case.f1)
    assert measures["best_f1"] == 100.0


@EACH_THRESHOLD
def test_a_threshold_that_is_set_is_used(case: Threshold) -> None:
    examples, answers = _questions(case.rows)
    family = spans.ConditionalSpanAnswering(null_threshold=case.best)
    measures = family.measures(examples, answers)
    assert measures["threshold"] == case.best
    assert measures["f1"] == 100.0

    merged = [family.merge([answer]) for answer in answers]
    tuned = spans.tune_threshold(examples, merged)
    expected = ["" if is_impossible else "Ada" for is_impossible, _ in case.rows]
    assert [answer.text for answer in tuned] == expected


@pytest.mark.parametrize(("null_score", "text"), [(-0.5, "Ada"), (0.5, "")])
def test_without_labels_even_odds_decide(null_score: float, text: str) -> None:
    unlabeled = [SpanExample("q", "Who?", "Ada left.")]
    _, answers = _questions([(False, null_score)])
    averaged = spans.ConditionalSpanAnswering().averaged(answers)
    (tuned,) = spans.tune_threshold(unlabeled, [averaged])
    assert tuned.text == text
