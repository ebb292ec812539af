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
    if split.startswith("test"):
        columns = ("index", *task.texts)
        rows = [columns, *rows_of(task, columns, num_rows=4)]
    elif task.header:  # the columns of files that have no heading
        rows = rows_of(task, task.header, num_rows=8)
    else:
        columns = (*task.texts, task.label)
        rows = [columns, *rows_of(task, columns, num_rows=8)]

    name = task.files[0] if task.files else f"{task.folder}/{split}.tsv"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(cells) for cells in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rows_of(
    task: GlueTask, columns: tuple[str, ...], num_rows: int
) -> list[tuple[str, ...]]:
    """Return rows with the labels of a task in turn; columns that it does not read have
    an x.
    """
    labels = task.written or task.labels or ("1.5", "4.25")
    rows = list[tuple[str, ...]]()
    for number in range(num_rows):
        cells = {"index": str(number), task.label: labels[number % len(labels)]}
        for place, name in enumerate(task.texts):
            cells[name] = TEXTS[(number + place) % 6]
        rows.append(tuple(cells.get(column, "x") for column in columns))
    return rows


def run_glue(desk: Desk, data: Path, *words: object) -> Done:
    """Train on the tasks in a folder; the runs are next to it."""
    glue = ("glue", "--model", desk.base, "--data", data)
    return litebert(*glue, "--runs", data.parent / "runs", *QUICK, *words)


def test_a_recipe_of_a_task_gives_way_to_typed_settings(desk: Desk, data: Path) -> None:
    finetune = ("finetune", "rte", "--model", desk.base, "--data", data)
    settings = ("train.epochs=4", "train.batch_size=4")
    plan = litebert(*finetune, *settings, "--dry-run", "--json").ok.json
    assert plan["steps"] == 8


# ---- the table -----------------------------------------------------------------------


def test_scores_of_tasks_stand_beside_those_of_the_paper(
    desk: Desk, data: Path
) -> None:
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
    assert (runs / "rte" / "report.html").is_file()
    assert (runs / "stsb" / "report.html").is_file()


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


# ---- the archive ---------------------------------------------------------------------


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


# ---- what is refused before training -------------------------------------------------


def assert_no_runs(data: Path) -> None:
    assert not (data.parent / "runs").exists()


def test_some_tasks_alone_are_no_submission(desk: Desk, data: Path) -> None:
    submission = ("--submission", data.parent / "submission")
    done = run_glue(desk, data, "--tasks", "rte", *submission)
    assert_error(done, 1, "LB-826")
    assert_no_runs(data)


def test_a_misspelt_task_is_refused(desk: Desk, data: Path) -> None:
    done = run_glue(desk, data, "--tasks", "mrcp")
    assert_error(done, 1, "LB-529", "did you mean mrpc?")
    assert_no_runs(data)


def test_a_task_without_a_training_set_is_refused(desk: Desk, data: Path) -> None:
    assert_error(run_glue(desk, data, "--tasks", "ax"), 1, "LB-529")
    assert_no_runs(data)


def test_a_folder_that_does_not_exist_is_refused(
    desk: Desk, data: Path, tmp_path: Path
) -> None:
    assert_error(run_glue(desk, tmp_path / "none"), 1, "LB-530")
    assert_no_runs(data)


def test_a_submission_needs_every_test_set(desk: Desk, data: Path) -> None:
    (data / "QQP" / "test.tsv").unlink()
    done = run_glue(desk, data, "--submission", data.parent / "submission")
    assert_error(done, 1, "LB-820")
    assert_no_runs(data)


def test_a_task_needs_its_evaluation_set(desk: Desk, data: Path) -> None:
    (data / "RTE" / "dev.tsv").unlink()
    assert_error(run_glue(desk, data, "--tasks", "wnli,rte"), 1, "LB-820")
    assert_no_runs(data)
