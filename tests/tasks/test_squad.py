"""SQuAD: windows as the official code cuts them, the best spans as brute force finds
them, thresholds, files.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from litebert.errors import LitebertError
from litebert.files import Json, write_json, write_text
from litebert.metrics import normalize_answer
from litebert.nn import AlbertForTask
from litebert.reading.source import find_file
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
from litebert.tasks.named.questions import read_squad, score_predictions
from litebert.tokenizer import Tokenizer, train_tokenizer
from tests.networks import config_for

# Four questions on each of 18 contexts; one of the four has no answer there
PEOPLE = ("Jürgen", "Anna", "Old Marta", "Émile", "The captain", "Sister Clara")
VOYAGES = list[SpanExample]()
for number, (who, where) in enumerate(product(PEOPLE, ("Århus", "Porto", "Galway"))):
    count = f"{137 * number % 4000 + 1000:,}"
    context = (
        f"On Monday {who} sailed to {where} with {count} lanterns. It rained.  Nobody"
        f" waited at the “{where}” harbour, and the lanterns stayed aboard."
    )
    for asked, text in {
        "Who sailed?": who,
        "Where to?": where,
        "How many?": count,
        "Why?": None,
    }.items():
        answers = () if text is None else (GoldAnswer(text, context.index(text)),)
        VOYAGES.append(SpanExample(f"v{number}-{asked}", asked, context, answers))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [text for one in VOYAGES for text in (one.context, one.question)]
    return Tokenizer.from_model(train_tokenizer(texts, vocab_size=80))


def write_squad(path: Path, examples: Sequence[SpanExample], **changes: Json) -> Path:
    """Write a file in SQuAD's layout, one paragraph per question; `changes` sets fields
    of each, None omits one.
    """
    articles: list[Json] = []
    for one in examples:
        answers: Json = [
            {"text": answer.text, "answer_start": answer.start}
            for answer in one.answers or ()
        ]
        fields = {
            "id": one.id,
            "question": one.question,
            "answers": answers,
            "is_impossible": one.is_impossible,
        }
        question: Json = {
            key: value for key, value in (fields | changes).items() if value is not None
        }
        articles.append(
            {
                "title": "Voyages",
                "paragraphs": [{"context": one.context, "qas": [question]}],
            }
        )
    write_json(path, {"data": articles})
    return path


BOTH = pytest.mark.parametrize(
    "family", [SpanAnswering(), spans.ConditionalSpanAnswering()]
)
FEW = settings(deadline=None, max_examples=60)


# Windows


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


@FEW
@given(st.integers(0, 300), st.integers(1, 300), st.integers(1, 200))
@example(430, 300, 128)
def test_windows_leave_no_gap_and_a_piece_counts_where_context_is_largest(
    pieces: int, room: int, stride: int
) -> None:
    windows = spans.windows_of(pieces, room=room, doc_stride=stride)
    chosen = spans.most_context(windows, pieces)
    assert [start for start, _ in windows] == [
        n * min(room, stride) for n in range(len(windows))
    ]
    assert all(0 < stop - start <= room for start, stop in windows)
    assert sum(stop == pieces for _, stop in windows) == (1 if pieces else 0)
    for piece in range(pieces):
        scores = [
            (
                min(piece - start, stop - 1 - piece) + 0.01 * (stop - start)
                if start <= piece < stop
                else -1.0
            )
            for start, stop in windows
        ]
        # it is in a window
        assert chosen[piece] == scores.index(max(scores)) and max(scores) > 0


def test_windows_without_the_answer_are_kept_and_only_training_has_targets(
    tokenizer: Tokenizer,
) -> None:
    learnt, asked = (
        _windows(VOYAGES[0], tokenizer, length=32, training=is_training)
        for is_training in (True, False)
    )
    targets = [
        tuple(window.target.tolist()) for window in learnt if window.target is not None
    ]
    assert len(targets) == len(learnt) > 2
    assert {target if target[2] else "found" for target in targets} == {
        (0, 0, 1),
        "found",
    }
    assert all(window.target is None and window.num_tokens <= 32 for window in asked)
    num_pieces = len(tokenizer.encode(VOYAGES[0].context).ids)
    assert sum(int(window.has_most_context.sum()) for window in asked) == num_pieces


def test_a_question_that_cannot_be_learnt_or_asked_is_refused(
    tokenizer: Tokenizer,
) -> None:
    ada = GoldAnswer("Ada", 0)
    for answers in (None, (ada, ada)):
        with pytest.raises(LitebertError, match="LB-806"):
            _windows(SpanExample("q", "Who?", "Ada left.", answers), tokenizer)
    # no room is left for the context
    with pytest.raises(LitebertError, match="LB-807"):
        _windows(SpanExample("q", "Who? " * 50, "Ada left."), tokenizer, training=False)


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


# Decoding

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
    assert (scores, answer.null_score) == ([("b", 2.0, 2.5), ("a", 2.0, 2.0)], 0.5)
    assert sum(span.probability for span in answer.n_best) == pytest.approx(1.0)
    one, other = (
        SpanAnswer((ProposedSpan("Ada", 17 * n, 17 * n + 3, 1.0 - n, 1.0),))
        for n in (0, 1)
    )
    # one text at two places stays apart until it is ranked
    answer = SpanAnswering().averaged([one, other])
    assert [(span.start, span.score) for span in answer.n_best] == [(0, 2.0)]


def test_a_question_on_an_empty_context_is_answered_as_officially() -> None:
    blank = [SpanExample("q", "Who?", " ")]
    for family, text, null_score in (
        (SpanAnswering(), "empty", None),
        (spans.ConditionalSpanAnswering(), "", 1e6),
    ):
        (answer,) = family.answers(blank, [], [])
        assert (answer.text, answer.null_score) == (text, null_score)
        assert (family.merge([]).text, family.merge([]).null_score) == (
            text,
            null_score,
        )


# Losses, the beam and rows


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
    scored = _scored(network, feature, 5)
    expected = {
        (int(start), int(end)): float(scored.start[0, start] + scored.end[0, n, end])
        for n, start in enumerate(scored.chosen[0])
        for end in scored.end[0, n].topk(5).indices
        if end >= start
    }
    assert {
        (int(row[0]), int(row[1])): float(row[2] + row[3]) for row in rows[1:]
    } == pytest.approx(expected)
    assert rows[0, 2] == pytest.approx(float(scored.no_answer[0]))


# When no answer is given


def _questions(
    rows: list[tuple[bool, float]],
) -> tuple[list[SpanExample], list[SpanAnswer]]:
    ada = (GoldAnswer("Ada", 0),)
    examples = [
        SpanExample(str(n), "Who?", "Ada left.", () if bad else ada)
        for n, (bad, _) in enumerate(rows)
    ]
    return examples, [
        SpanAnswer((ProposedSpan("Ada", 0, 3, 0.0, 0.0),), null) for _, null in rows
    ]


# Rows (is it impossible, null score), the official threshold, the submitted answers,
# F1, and the best threshold
SEPARABLE = [(False, -3.0), (False, -2.0), (True, 0.5), (True, 4.0)]
THRESHOLDS = {
    "the question that set it stays unanswered": (
        SEPARABLE,
        -2.0,
        "Ada,,,",
        75.0,
        -0.75,
    ),
    "above 1 is no answer, whatever was tuned": (
        [(False, 2.0), (False, 3.0), (True, 4.0)],
        3.0,
        "Ada,,",
        100 / 3,
        3.5,
    ),
    "negative where nothing is best": (
        [(True, -2.0), (True, 3.0)],
        0.0,
        "Ada,",
        50.0,
        -2.0,
    ),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_the_official_threshold_has_its_quirks_and_a_given_one_is_used(
    name: str,
) -> None:
    rows, official, texts, f1, right = THRESHOLDS[name]
    examples, answers = _questions(rows)
    assert (
        ",".join(answer.text for answer in spans.tune_threshold(examples, answers))
        == texts
    )
    measured = spans.ConditionalSpanAnswering().measures(examples, answers)
    assert (measured["f1"], measured["threshold"]) == (pytest.approx(f1), official)
    assert measured["best_f1"] == 100.0
    family = spans.ConditionalSpanAnswering(null_threshold=right)
    measured = family.measures(examples, answers)
    assert (measured["f1"], measured["threshold"]) == (100.0, right)
    silent = ["" if bad else "Ada" for bad, _ in rows]
    fixed = spans.tune_threshold(
        examples, [family.merge([answer]) for answer in answers]
    )
    assert [answer.text for answer in fixed] == silent


def test_without_labels_even_odds_decide() -> None:
    unlabelled = [SpanExample("q", "Who?", "Ada left.")]
    for null_score, text in ((-0.5, "Ada"), (0.5, "")):
        _, answers = _questions([(False, null_score)])
        (tuned,) = spans.tune_threshold(
            unlabelled, [spans.ConditionalSpanAnswering().averaged(answers)]
        )
        assert tuned.text == text


# Files

NILE = SpanExample("q", "What?", "The Nile is long.", (GoldAnswer("Nile", 4),))


def test_no_answer_is_distinguished_from_an_unknown_answer(tmp_path: Path) -> None:
    cases = (
        (None, None, None),
        ([], False, None),
        ([], True, ()),
        ([], None, ()),
        (None, True, ()),
    )
    for answers, is_impossible, expected in cases:
        path = write_squad(
            tmp_path / "dev.json", [NILE], answers=answers, is_impossible=is_impossible
        )
        (example,), _ = read_squad(find_file(path))
        assert example.answers == expected


# The content of a file, or changed fields of its question; the message
REFUSED: dict[str, tuple[str | dict[str, Json], str]] = {
    "cut off": ('{"data": [', "LB-312.*dev.json"),
    "another layout": ('{"rows": [1, 2]}', "LB-848.*dev.json, item 1"),
    "no question": (
        {"question": None},
        r"LB-801.*dev.json, item 1(.|\n)*question: Field required",
    ),
    "in letters": (
        {"answers": [{"text": "Nile", "answer_start": "4"}]},
        r"LB-801(.|\n)*answer_start should be",
    ),
    "answered and impossible": ({"is_impossible": True}, "LB-801.*dev.json, item 1"),
    **{
        f"at {n}": (
            {"answers": [{"text": "Nile", "answer_start": n}]},
            "LB-802.*question q",
        )
        for n in (5, -13, 10**30)
    },
    "beyond the end": ({"answers": [{"text": "long. ", "answer_start": 12}]}, "LB-802"),
    "a space": ({"answers": [{"text": " ", "answer_start": 3}]}, "LB-802"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_names_the_file_and_the_question(name: str, tmp_path: Path) -> None:
    content, message = REFUSED[name]
    if isinstance(content, str):
        write_text(tmp_path / "dev.json", content)
    else:
        write_squad(tmp_path / "dev.json", [NILE], **content)
    with pytest.raises(LitebertError, match=message):
        read_squad(find_file(tmp_path / "dev.json"))


def test_a_split_is_a_file_and_a_repeated_question_is_refused(tmp_path: Path) -> None:
    read = DATASETS["squad2"].read
    file = write_squad(tmp_path / "dev-v2.0.json", VOYAGES)
    assert read(tmp_path, "dev") == read(file, "dev") == VOYAGES
    write_squad(tmp_path / "train-v2.0.json", [*VOYAGES[:2], VOYAGES[0]])
    with pytest.raises(LitebertError, match="LB-803"):
        read(tmp_path, "train")


def test_a_context_that_is_too_long_for_a_data_set_is_refused(tmp_path: Path) -> None:
    write_squad(
        tmp_path / "dev.json", [replace(NILE, context="The Nile is long. " * 12_000)]
    )
    with pytest.raises(LitebertError, match=r"LB-811: .*question q"):
        read_squad(find_file(tmp_path / "dev.json"))


def test_answers_are_written_in_the_official_form() -> None:
    examples = [SpanExample("q1", "Who?", "Ada Né"), SpanExample("q2", "Né?", "Ada Né")]
    proposed = (
        ProposedSpan("Ada", 0, 3, 1.5, 2.0, 0.75),
        ProposedSpan("é", 4, 7, 1.0, 1.0, 0.25),
    )
    files = DATASETS["squad"].submission(
        "dev", examples, [SpanAnswer(proposed), SpanAnswer((spans.EMPTY,))]
    )
    assert files["predictions.json"] == '{\n    "q1": "Ada",\n    "q2": "empty"\n}\n'
    second = {
        "text": "é",
        "probability": 0.25,
        "start_log_prob": 1.0,
        "end_log_prob": 1.0,
    }
    assert (
        json.loads(files["nbest_predictions.json"])["q1"][1] == second
        and "null_odds.json" not in files
    )


def test_written_files_score_what_the_family_measures(tmp_path: Path) -> None:
    answers = [
        SpanAnswer(
            (ProposedSpan(one.context[:12], 0, 12, 0.0, 0.0),),
            null_score=number % 7 - 3.5,
        )
        for number, one in enumerate(VOYAGES)
    ]
    for name, text in DATASETS["squad2"].submission("dev", VOYAGES, answers).items():
        write_text(tmp_path / name, text)
    write_squad(tmp_path / "dev.json", VOYAGES)
    files = [tmp_path / f"{name}.json" for name in ("dev", "predictions", "null_odds")]
    scored = score_predictions(files[0], files[1], null_odds=files[2])
    measured = spans.ConditionalSpanAnswering().measures(VOYAGES, answers)
    shared = [
        name
        for name in measured
        if name.endswith(("exact", "f1")) and "best" not in name
    ]
    assert {name: scored[name] for name in shared} == {
        name: measured[name] for name in shared
    }
    assert scored["has_answer_total"] == sum(bool(one.answers) for one in VOYAGES)


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [({"is_impossible": None}, 50.0, "count as wrong"), ({}, 100.0, "are left out")],
)
def test_unanswered_questions_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Json],
    expected: float,
    said: str,
) -> None:
    write_squad(tmp_path / "dev.json", VOYAGES[:2], **changes)
    write_json(tmp_path / "found.json", {VOYAGES[0].id: VOYAGES[0].answers[0].text})  # type: ignore[index]
    measured = score_predictions(tmp_path / "dev.json", tmp_path / "found.json")
    assert (measured["exact"], measured["unanswered"]) == (expected, 1)
    warning = capsys.readouterr().err
    assert said in warning and VOYAGES[1].id in warning


WHO = "v0-Who sailed?"
MISFITS = [("LB-801", {WHO: 1}, {}), ("LB-809", {"elsewhere": "x"}, {})]
MISFITS += [
    ("LB-801", {WHO: "x"}, {WHO: "high"}),
    ("LB-810", {WHO: "x"}, {"v0-Where to?": 0.5}),
]


@pytest.mark.parametrize(("code", "predictions", "nulls"), MISFITS)
def test_predictions_that_do_not_fit_are_refused(
    tmp_path: Path, code: str, predictions: Json, nulls: Json
) -> None:
    write_squad(tmp_path / "dev.json", VOYAGES[:4])
    path = tmp_path / "predictions.json"
    null_odds = tmp_path / "nulls.json"
    write_json(path, predictions)
    write_json(null_odds, nulls)
    with pytest.raises(LitebertError, match=code):
        score_predictions(
            tmp_path / "dev.json", path, null_odds=null_odds if nulls else None
        )
    write_squad(tmp_path / "old.json", VOYAGES[:1], is_impossible=None)
    with pytest.raises(LitebertError, match=r"LB-810.*SQuAD 1[.]1"):
        score_predictions(tmp_path / "old.json", path, null_odds=null_odds)
