"""What the list of runs and a comparison say of unusual runs."""

import json
from pathlib import Path

import pytest

from litebert.report.listing import runs_compare, runs_list
from litebert.report.published import preset_of
from litebert.runs import RunFolder


def run(folder: Path, *, step: int = 0, **settings: object) -> Path:
    """Write the files of a pretraining run whose last logged step is `step`."""
    folder.mkdir(parents=True)
    dotted = {"train.steps": 100, "model.num_hidden_layers": 6}
    dotted |= {"model.hidden_size": 128, "train.seed": 1}
    for name, value in settings.items():
        dotted[name.replace("__", ".")] = value
    (folder / "run.json").write_text(json.dumps({"litebert": "1", "settings": dotted}))
    if step:
        row = {"kind": "train", "step": step, "loss": 3.0}
        (folder / "metrics.jsonl").write_text(f"{json.dumps(row)}\n")
    return folder


def evaluate(folder: Path, step: int, **measures: float) -> None:
    with (folder / "metrics.jsonl").open("a") as log:
        log.write(f"{json.dumps({'kind': 'eval', 'step': step, **measures})}\n")


def test_a_run_with_a_limit_of_time_has_no_planned_number_of_steps(
    tmp_path: Path,
) -> None:
    run(tmp_path / "counted", step=10)
    run(tmp_path / "timed", step=10, train__minutes=5)
    table = runs_list(runs=tmp_path)
    planned = [row[table.headings.index("of")] for row in table.rows]
    assert planned == [100, None]
    assert table.digest is not None
    assert [row[2] for row in table.digest.rows] == ["10 of 100", "10, not finished"]


def test_a_run_of_several_seeds_is_as_far_as_its_slowest_seed(tmp_path: Path) -> None:
    for seed, step in ((1, 30), (2, 20)):
        run(tmp_path / "runs" / "many" / f"seed-{seed}", step=step)
    table = runs_list(runs=tmp_path / "runs")
    (cells,) = table.as_json()
    assert (cells["name"], cells["seeds"], cells["step"]) == ("many", 2, 20)


def test_runs_in_folders_of_runs_are_listed_and_files_beside_them_are_not(
    tmp_path: Path,
) -> None:
    run(tmp_path / "a")
    run(tmp_path / "group" / "b")
    (tmp_path / "notes.txt").write_text("my notes")
    names = [cells["name"] for cells in runs_list(runs=tmp_path).as_json()]
    assert names == ["a", "group/b"]


def test_the_list_of_doubtful_runs_says_where_the_doubts_are_in_full(
    tmp_path: Path,
) -> None:
    sure = run(tmp_path / "a")
    evaluate(sure, 10, masked_lm_accuracy=0.5, masked_lm_baseline=0.1)
    assert runs_list(runs=tmp_path).notes == ()
    doubtful = run(tmp_path / "b")
    evaluate(doubtful, 10, masked_lm_accuracy=0.1, masked_lm_baseline=0.1)
    warning, where = runs_list(runs=tmp_path).notes
    assert warning.startswith("warning b: ")
    assert "litebert report RUN" in where


@pytest.mark.parametrize(("value", "text"), [(1.0, "1.0000"), (2_000.0, "2,000")])
def test_a_comparison_shows_a_measure_of_one_as_a_measure(
    tmp_path: Path, value: float, text: str
) -> None:
    folders = [run(tmp_path / "a"), run(tmp_path / "b")]
    for folder in folders:
        evaluate(folder, 10, masked_lm_accuracy=0.5, some_measure=value)
    table = runs_compare(*folders)
    rows = {(row[0], row[1]): row[2:] for row in table.words()}
    assert rows["last", "some_measure"] == [text, text]


def test_a_setting_is_compared_without_an_origin_that_is_unknown(
    tmp_path: Path,
) -> None:
    one = run(tmp_path / "a", train__batch_size=8)
    other = run(tmp_path / "b", train__batch_size=16)
    record = json.loads((other / "run.json").read_text())
    record["origins"] = {"train.batch_size": "flag", "train.seed": "flag"}
    (other / "run.json").write_text(json.dumps(record))
    rows = {row[1]: row[2:] for row in runs_compare(one, other).rows}
    assert rows["train.batch_size"] == ("8", "16 (flag)")
    assert "train.seed" not in rows


@pytest.mark.parametrize(
    ("start", "is_random", "preset"),
    [
        ("albert-base-v2", False, "base-v2"),
        ("albert/ALBERT-base-v2", False, "base-v2"),
        ("models/base-v2", True, None),
        ("models/mine", False, None),
    ],
)
def test_the_published_start_of_a_run_is_recognized_by_its_name(
    tmp_path: Path, start: str, is_random: bool, preset: str | None
) -> None:
    folder = run(tmp_path / "a", model__start=start, model__random=is_random)
    assert preset_of(RunFolder(folder)) == preset
