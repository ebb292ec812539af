"""`litebert glue`: real runs of a tiny network on every task, in seconds."""

import csv
import json
import zipfile
from pathlib import Path

import pytest

from litebert.tasks.named.glue import GLUE_TASKS, SUBMISSION_FILES, GlueTask
from tests.contract.shell import QUICK, TEXTS, Done, assert_error, litebert
from tests.contract.tiny import Desk


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with a few rows of every split of every task."""
    folder = tmp_path / "data"
    for task in GLUE_TASKS:
        for split in task.splits:
            write_split(folder, task, split)
    return folder


def write_split(folder: Path, task: GlueTask, split: str) -> None:
    """Write eight rows of a split, or four of a test set, as GLUE publishes them."""
    is_test = split.startswith("test")
    columns = (*task.texts, task.label)
    num_rows = 8
    if is_test:
        columns = ("index", *task.texts)
        num_rows = 4
    elif task.header:
        columns = task.header
    lines = list[str]()
    if is_test or not task.header:
        lines.append("\t".join(columns))

    labels = task.written or task.labels or ("1.5", "4.25")
    for number in range(num_rows):
        row = {"index": str(number), task.label: labels[number % len(labels)]}
        for place, name in enumerate(task.texts):
            row[name] = TEXTS[(number + place) % 6]
        lines.append("\t".join(row.get(column, "x") for column in columns))

    name = task.files[0] if task.files else f"{task.folder}/{split}.tsv"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_glue(desk: Desk, data: Path, *words: object) -> Done:
    """Train on the tasks in a folder; the runs are next to it."""
    glue = ("glue", "--model", desk.base, "--data", data)
    return litebert(*glue, "--runs", data.parent / "runs", *QUICK, *words)


def test_a_recipe_of_a_task_gives_way_to_typed_settings(desk: Desk, data: Path) -> None:
    finetune = ("finetune", "rte", "--model", desk.base, "--data", data)
    settings = ("train.epochs=4", "train.batch_size=4")
    plan = litebert(*finetune, *settings, "--dry-run", "--json").ok.json
    assert plan["steps"] == 8


def test_tasks_are_in_one_table_with_the_papers_scores(desk: Desk, data: Path) -> None:
    done = run_glue(desk, data, "--tasks", "rte,stsb", "--json").ok
    assert "the best evaluation, which was chosen on dev itself" in done.stderr
    note = f"started from {desk.base}, which is not one of the published models"
    assert note in done.stderr
    rte, stsb = done.json

    runs = data.parent / "runs" / "glue"
    result = json.loads((runs / "rte" / "result.json").read_text())
    assert rte == {
        "task": "rte",
        "measure": "accuracy",
        "last": round(100 * result["last"]["accuracy"], 2),
        "best": round(100 * result["best"]["accuracy"], 2),
        "seeds": 1,
        "published": 89.2,
        "model": "xxlarge-v1",
        "source": "Table 9, row ALBERT (1.5M)",
    }
    assert stsb["task"] == "stsb"
    assert stsb["measure"] == "pearson"
    assert stsb["published"] == 93.0
    for task in ("rte", "stsb"):
        assert (runs / task / "report.html").is_file()


def test_tasks_that_are_trained_are_shown_again_without_training(
    desk: Desk, data: Path
) -> None:
    tasks = ("--tasks", "rte,stsb")
    rows = run_glue(desk, data, *tasks, "--json").ok.json
    log = data.parent / "runs" / "glue" / "rte" / "metrics.jsonl"
    time_of_log = log.stat().st_mtime_ns

    table = run_glue(desk, data, *tasks, "--csv").ok.stdout
    assert log.stat().st_mtime_ns == time_of_log
    for row, cells in zip(rows, csv.DictReader(table.splitlines()), strict=True):
        assert cells["task"] == row["task"]
        assert float(cells["last"]) == row["last"]
    heading, *_ = run_glue(desk, data, *tasks).ok.stdout.splitlines()
    assert heading.split()[:4] == ["task", "measure", "last", "best"]


@pytest.mark.slow
def test_all_tasks_are_submitted_as_one_archive(desk: Desk, data: Path) -> None:
    output = data.parent / "submission"
    done = run_glue(desk, data, "--submission", output, "--json").ok
    trained = [task.name for task in GLUE_TASKS if task.name != "ax"]
    assert [row["task"] for row in done.json] == trained

    with zipfile.ZipFile(output / "glue.zip") as archive:
        assert archive.namelist() == list(SUBMISSION_FILES)
        for name in SUBMISSION_FILES:
            heading, *lines = archive.read(name).decode().splitlines()
            assert heading == "index\tprediction"
            assert [line.split("\t")[0] for line in lines] == ["0", "1", "2", "3"]
            assert (output / name).read_text("utf-8").splitlines() == [heading, *lines]


def test_tasks_that_cannot_be_trained_or_submitted_are_refused(
    desk: Desk, data: Path, tmp_path: Path
) -> None:
    submission = ("--submission", data.parent / "submission")
    done = run_glue(desk, data, "--tasks", "rte", *submission)
    assert_error(done, 1, "LB-826")
    done = run_glue(desk, data, "--tasks", "mrcp")
    assert_error(done, 1, "LB-529", "did you mean mrpc?")
    assert_error(run_glue(desk, data, "--tasks", "ax"), 1, "LB-529")
    assert_error(run_glue(desk, tmp_path / "none"), 1, "LB-530")
    assert not (data.parent / "runs").exists()


def test_incomplete_data_are_refused_before_training(desk: Desk, data: Path) -> None:
    (data / "QQP" / "test.tsv").unlink()
    done = run_glue(desk, data, "--submission", data.parent / "submission")
    assert_error(done, 1, "LB-820")
    (data / "RTE" / "dev.tsv").unlink()
    assert_error(run_glue(desk, data, "--tasks", "wnli,rte"), 1, "LB-820")
    assert not (data.parent / "runs").exists()
