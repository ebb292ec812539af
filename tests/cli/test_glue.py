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
    folder = tmp_path / "data"
    for task in GLUE_TASKS:
        for split in task.splits:
            write_split(folder, task, split)
    return folder


def write_split(folder: Path, task: GlueTask, split: str) -> None:
    is_test = split.startswith("test")
    header = ("index", *task.texts) if is_test else (*task.texts, task.label)
    header = task.header if task.header and not is_test else header
    lines = ["\t".join(header)] * (is_test or not task.header)
    for number in range(4 if is_test else 8):
        cells = {
            name: TEXTS[(number + place) % 6] for place, name in enumerate(task.texts)
        }
        labels = task.written or task.labels or ("1.5", "4.25")
        cells |= {"index": str(number), task.label: labels[number % len(labels)]}
        lines.append("\t".join(cells.get(name, "x") for name in header))
    name = task.files[0] if task.files else f"{task.folder}/{split}.tsv"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_glue(desk: Desk, data: Path, *words: object) -> Done:
    runs = data.parent / "runs"
    return litebert(
        "glue", "--model", desk.base, "--data", data, "--runs", runs, *QUICK, *words
    )


def test_tasks_are_trained_once_and_are_in_one_table_with_the_papers_scores(
    desk: Desk, data: Path
) -> None:
    shown = run_glue(desk, data, "--tasks", "rte,stsb", "--json").ok
    assert "the best evaluation, which was chosen on dev itself" in shown.stderr
    assert (
        f"started from {desk.base}, which is not one of the published models"
        in shown.stderr
    )
    runs = data.parent / "runs" / "glue"
    found = shown.json
    typed = (
        "finetune",
        "rte",
        "--model",
        desk.base,
        "--data",
        data,
        "train.epochs=4",
        "--dry-run",
        "--json",
    )
    # not those of the recipe
    assert litebert(*typed, "train.batch_size=4").ok.json["steps"] == 8
    reached = json.loads((runs / "rte" / "result.json").read_text())
    last, best = (
        round(100 * reached[each]["accuracy"], 2) for each in ("last", "best")
    )
    measured = {
        "task": "rte",
        "measure": "accuracy",
        "last": last,
        "best": best,
        "seeds": 1,
    }
    assert found[0] == {
        **measured,
        "published": 89.2,
        "model": "xxlarge-v1",
        "source": "Table 9, row ALBERT (1.5M)",
    }
    assert (found[1]["task"], found[1]["measure"], found[1]["published"]) == (
        "stsb",
        "pearson",
        93.0,
    )
    assert all((runs / task / "report.html").is_file() for task in ("rte", "stsb"))

    log = runs / "rte" / "metrics.jsonl"
    before = log.stat().st_mtime_ns
    again = run_glue(desk, data, "--tasks", "rte,stsb", "--csv")
    assert log.stat().st_mtime_ns == before
    rows = list(csv.DictReader(again.stdout.splitlines()))
    assert [(row["task"], float(row["last"])) for row in rows] == [
        (row["task"], row["last"]) for row in found
    ]
    people = run_glue(desk, data, "--tasks", "rte,stsb").stdout
    assert people.splitlines()[0].split()[:4] == ["task", "measure", "last", "best"]


@pytest.mark.slow
def test_all_tasks_are_submitted_as_one_archive(desk: Desk, data: Path) -> None:
    output = data.parent / "submission"

    found = run_glue(desk, data, "--submission", output, "--json").ok
    assert [row["task"] for row in found.json] == [
        task.name for task in GLUE_TASKS if task.name != "ax"
    ]
    with zipfile.ZipFile(output / "glue.zip") as archive:
        assert archive.namelist() == list(SUBMISSION_FILES)
        for name in SUBMISSION_FILES:
            lines = archive.read(name).decode().splitlines()
            assert lines[0] == "index\tprediction"
            assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2", "3"]
            assert (output / name).read_text("utf-8").splitlines() == lines


def test_incomplete_tasks_or_data_are_refused_before_training(
    desk: Desk, data: Path, tmp_path: Path
) -> None:
    submission = ("--submission", data.parent / "submission")
    refused: dict[tuple[object, ...], tuple[str, ...]] = {
        ("--tasks", "rte", *submission): ("LB-826",),
        ("--tasks", "mrcp"): ("LB-529", "did you mean mrpc?"),
        ("--tasks", "ax"): ("LB-529",),
    }
    for words, said in refused.items():
        assert_error(run_glue(desk, data, *words), 1, *said)
    assert_error(run_glue(desk, tmp_path / "none"), 1, "LB-530")
    (data / "QQP" / "test.tsv").unlink()
    assert_error(run_glue(desk, data, *submission), 1, "LB-820")
    (data / "RTE" / "dev.tsv").unlink()
    assert_error(run_glue(desk, data, "--tasks", "wnli,rte"), 1, "LB-820")
    assert not (data.parent / "runs").exists()
