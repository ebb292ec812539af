"""Reasons to doubt a result, at their limits; what is made of the results of several
seeds; and how well answers fit their confidence.
"""

import json
from pathlib import Path

import pytest

from litebert.report.answers import (
    NUM_BINS,
    Bin,
    calibration_bins,
    calibration_error,
    shorten,
)
from litebert.report.results import (
    LITTLE_GAIN,
    WORSE,
    doubts_of,
    ends_of,
    medians,
    starts_of,
)
from litebert.runs import MeasuredStep, Result, RunFolder
from litebert.tokenizer.tokenizer import MOST_UNKNOWN

PAIRS = 400
TWO_ERRORS = 1 / 20  # of a coin that is tossed 400 times


def run(
    folder: Path,
    *evaluations: dict[str, float],
    sentence: str = "order",
    **data: float,
) -> RunFolder:
    """Write the files of a pretraining run, evaluated at the steps 10, 20, ..."""
    settings = {"objective.sentence": sentence, "train.steps": 100}
    record = {"settings": settings, "data": data}
    (folder / "run.json").write_text(json.dumps(record))
    lines = []
    for number, values in enumerate(evaluations, start=1):
        lines.append(json.dumps({"kind": "eval", "step": 10 * number, **values}))
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return RunFolder(folder)


def test_a_good_run_and_one_without_an_evaluation_are_not_doubted(
    tmp_path: Path,
) -> None:
    good = {"masked_lm_accuracy": 0.4, "masked_lm_baseline": 0.1}
    good |= {"sentence_order_accuracy": 0.9, "sentence_order_pairs": PAIRS}
    assert doubts_of(run(tmp_path, good)) == []
    assert doubts_of(run(tmp_path)) == []


@pytest.mark.parametrize(
    ("accuracy", "is_doubted"),
    [
        (0.5, True),
        (0.5 + 0.99 * TWO_ERRORS, True),
        (0.5 - 0.99 * TWO_ERRORS, True),
        (0.5 + 1.01 * TWO_ERRORS, False),
        (0.5 - 1.01 * TWO_ERRORS, False),  # as good, with the labels exchanged
    ],
)
def test_sentence_order_is_doubted_within_two_standard_errors_of_chance(
    tmp_path: Path, accuracy: float, is_doubted: bool
) -> None:
    values = {"sentence_order_accuracy": accuracy, "sentence_order_pairs": PAIRS}
    doubts = doubts_of(run(tmp_path, values))
    assert len(doubts) == is_doubted
    if is_doubted:
        assert "Sentence order" in doubts[0]
        assert f"{PAIRS} pairs" in doubts[0]


@pytest.mark.parametrize("pairs", [{}, {"sentence_order_pairs": 0}])
def test_chance_is_not_judged_without_pairs(
    tmp_path: Path, pairs: dict[str, float]
) -> None:
    assert doubts_of(run(tmp_path, {"sentence_order_accuracy": 0.5} | pairs)) == []


def test_one_pair_says_nothing_beyond_chance(tmp_path: Path) -> None:
    values = {"sentence_order_accuracy": 0.9, "sentence_order_pairs": 1}
    (doubt,) = doubts_of(run(tmp_path, values, sentence="next"))
    assert "Next sentence" in doubt


@pytest.mark.parametrize(("factor", "is_doubted"), [(0.99, True), (1.01, False)])
def test_words_are_doubted_near_the_commonest_piece(
    tmp_path: Path, factor: float, is_doubted: bool
) -> None:
    values = {"masked_lm_accuracy": factor * LITTLE_GAIN * 0.1}
    values["masked_lm_baseline"] = 0.1
    assert len(doubts_of(run(tmp_path, values))) == is_doubted


@pytest.mark.parametrize(("rise", "is_doubted"), [(1.1, True), (0.9, False)])
def test_a_loss_that_rose_again_is_doubted_and_its_lowest_step_named(
    tmp_path: Path, rise: float, is_doubted: bool
) -> None:
    losses = [5.0, 3.0, 3.0 + rise * WORSE]
    doubts = doubts_of(run(tmp_path, *({"masked_lm_loss": loss} for loss in losses)))
    assert len(doubts) == is_doubted
    if is_doubted:
        assert "at step 20" in doubts[0]
        assert "3.000" in doubts[0]


@pytest.mark.parametrize(
    ("share", "is_doubted"), [(MOST_UNKNOWN, False), (1.01 * MOST_UNKNOWN, True)]
)
def test_many_unknown_tokens_are_doubted(
    tmp_path: Path, share: float, is_doubted: bool
) -> None:
    values = {"masked_lm_loss": 3.0}
    doubts = doubts_of(run(tmp_path, values, **{"unknown share": share}))
    assert len(doubts) == is_doubted


# ---- several seeds -------------------------------------------------------------------


def result(last: float, best: float, first: float | None = None) -> Result:
    def step(number: int, value: float) -> MeasuredStep:
        return MeasuredStep.model_validate({"step": number, "f1": value})

    return Result(
        task="x",
        key_measure="f1",
        last=step(20, last),
        best=step(10, best),
        first=None if first is None else step(0, first),
        evaluations=2,
        fresh=(),
    )


def test_last_steps_and_best_evaluations_are_summarised_apart() -> None:
    results = [result(0.1, 0.5), result(0.3, 0.9), result(0.2, 0.6)]
    assert medians(results) == (0.2, 0.6)
    ends = ends_of(results)
    assert list(ends) == ["last", "best"]
    assert ends["last"]["f1"].mean == pytest.approx(0.2)
    assert ends["best"]["f1"].number == 3
    assert medians([]) == (None, None)
    assert ends_of([]) == {}


def test_the_start_is_shown_only_if_every_seed_used_it() -> None:
    used = [result(0.1, 0.5, first=0.2), result(0.3, 0.9, first=0.4)]
    assert starts_of(used)["f1"].median == pytest.approx(0.3)
    assert starts_of([*used, result(0.1, 0.5)]) == {}
    assert starts_of([]) == {}


# ---- calibration ---------------------------------------------------------------------


def test_a_bin_has_its_upper_edge_and_not_its_lower_one() -> None:
    edge = 2 / NUM_BINS
    together = calibration_bins([edge - 0.001, edge], [1.0, 0.0])
    assert [bin_.size for bin_ in together] == [2]
    assert together[0].accuracy == 0.5
    assert together[0].confidence == pytest.approx(edge - 0.0005)
    apart = calibration_bins([edge, edge + 0.001], [1.0, 0.0])
    assert [bin_.size for bin_ in apart] == [1, 1]


def test_there_are_fifteen_bins_of_equal_width() -> None:
    confidences = [(number + 0.5) / 300 for number in range(300)]
    bins = calibration_bins(confidences, [1.0] * 300)
    assert [bin_.size for bin_ in bins] == [20] * 15


def test_the_calibration_error_weighs_bins_by_their_answers() -> None:
    bins = [Bin(0.5, 0.7, 30), Bin(0.9, 0.5, 10)]
    assert calibration_error(bins) == pytest.approx((30 * 0.2 + 10 * 0.4) / 40)


def test_a_text_is_cut_beyond_its_limit_only() -> None:
    assert shorten("abcd", 4) == "abcd"
    assert shorten("abcde", 4) == "abcd…"
