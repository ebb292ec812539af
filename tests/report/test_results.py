"""Reasons to doubt a result, at their limits; what was trained, in words; and what is
made of the results of several seeds.
"""

import json
from pathlib import Path

import pytest

from litebert.report.results import (
    doubts_of,
    ends_of,
    is_worse_than_start,
    medians,
    network_of,
    results_of,
    start_of,
    starts_of,
    task_of,
)
from litebert.runs import MeasuredStep, Result, RunFolder

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


@pytest.mark.parametrize(("accuracy", "is_doubted"), [(0.149, True), (0.151, False)])
def test_words_are_doubted_below_one_and_a_half_times_the_commonest_piece(
    tmp_path: Path, accuracy: float, is_doubted: bool
) -> None:
    values = {"masked_lm_accuracy": accuracy, "masked_lm_baseline": 0.1}
    assert len(doubts_of(run(tmp_path, values))) == is_doubted


@pytest.mark.parametrize(
    ("losses", "is_worse"),
    [((4.0, 4.1), True), ((4.0, 3.9, 4.1), False), ((4.0, 3.5), False)],
)
def test_a_continuation_that_only_rose_is_worse_than_its_start(
    tmp_path: Path, losses: tuple[float, ...], is_worse: bool
) -> None:
    evaluated = run(tmp_path, *({"masked_lm_loss": loss} for loss in losses))
    assert not is_worse_than_start(evaluated)  # of an unknown start
    log = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(log.replace('"step": 10,', '"step": 0,'))
    assert is_worse_than_start(RunFolder(tmp_path)) == is_worse


@pytest.mark.parametrize(("last", "is_doubted"), [(3.011, True), (3.009, False)])
def test_a_loss_that_rose_again_is_doubted_and_its_lowest_step_named(
    tmp_path: Path, last: float, is_doubted: bool
) -> None:
    losses = [5.0, 3.0, last]
    doubts = doubts_of(run(tmp_path, *({"masked_lm_loss": loss} for loss in losses)))
    assert len(doubts) == is_doubted
    if is_doubted:
        assert "at step 20" in doubts[0]
        assert "3.000" in doubts[0]


@pytest.mark.parametrize(
    ("share", "is_doubted"), [(0.0, False), (0.01, False), (0.0101, True)]
)
def test_many_unknown_tokens_are_doubted(
    tmp_path: Path, share: float, is_doubted: bool
) -> None:
    values = {"masked_lm_loss": 3.0}
    doubts = doubts_of(run(tmp_path, values, **{"unknown share": share}))
    assert len(doubts) == is_doubted


# ---- what was trained ----------------------------------------------------------------


def described(folder: Path, settings: dict[str, object], **record: object) -> RunFolder:
    (folder / "run.json").write_text(json.dumps({"settings": settings, **record}))
    return RunFolder(folder)


@pytest.mark.parametrize(
    ("start", "origin", "is_random", "name"),
    [
        ("models/mine", "flag", False, "models/mine"),
        ("models/mine", "flag", True, "random weights, shaped as models/mine"),
        ("/lib/litebert/model", "default", False, "the packaged model"),
        ("litebert", "flag", False, "the packaged model"),
    ],
)
def test_the_start_is_named(
    tmp_path: Path, start: str, origin: str, is_random: bool, name: str
) -> None:
    settings = {"model.start": start, "model.random": is_random}
    run = described(tmp_path, settings, origins={"model.start": origin})
    assert start_of(run) == name


def test_a_task_is_named_by_its_file_if_it_is_your_own(tmp_path: Path) -> None:
    assert task_of(described(tmp_path, {"task.name": "mrpc"})) == "mrpc"
    own = {"task.name": "table", "data.train": "texts/reviews.csv"}
    assert task_of(described(tmp_path, own)) == "reviews.csv"
    run = described(tmp_path, own, data={"problem": "single-label"})
    assert task_of(run) == "reviews.csv (single-label)"


def test_a_network_is_named_by_its_preset_if_it_has_one(tmp_path: Path) -> None:
    settings = {"model.num_hidden_layers": 6, "model.hidden_size": 128}
    assert network_of(described(tmp_path, settings)) == "6 layers of 128"
    origins = {"model.hidden_size": "preset mini (flag)"}
    run = described(tmp_path, settings, origins=origins)
    assert network_of(run) == "mini: 6 layers of 128"


def test_the_best_evaluation_of_a_pretraining_is_the_most_accurate(
    tmp_path: Path,
) -> None:
    accuracies = (0.1, 0.3, 0.2)
    evaluations = [{"masked_lm_accuracy": accuracy} for accuracy in accuracies]
    (result,) = results_of(run(tmp_path, *evaluations, {"masked_lm_loss": 1.0}))
    assert (result.best.step, result.last.step) == (20, 30)
    assert result.num_evaluations == 3
    assert results_of(run(tmp_path, {"masked_lm_loss": 1.0})) == []


def test_a_fine_tuning_has_the_results_and_doubts_of_its_files(tmp_path: Path) -> None:
    run = described(tmp_path, {"task.name": "mrpc"})
    assert results_of(run) == []
    step = {"step": 5, "f1": 0.5}
    record = {"task": "mrpc", "key_measure": "f1", "last": step, "best": step}
    record |= {"evaluations": 1, "fresh": [], "doubts": ["few", "few", "old"]}
    (tmp_path / "result.json").write_text(json.dumps(record))
    run = RunFolder(tmp_path)
    assert medians(results_of(run)) == (0.5, 0.5)
    assert doubts_of(run) == ["few", "old"]


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
