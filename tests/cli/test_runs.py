"""`litebert runs list` and `litebert runs compare`: the same numbers in every format."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.files import Json, write_json, write_text
from tests.contract.shell import litebert, says


def pretraining(folder: Path, accuracies: tuple[float, ...] = (0.1, 0.3, 0.2)) -> None:
    settings = {"model.num_hidden_layers": 6, "model.hidden_size": 256, "train.steps": 30}
    origins = {"model.hidden_size": "preset mini (flag)", "train.steps": "default"}
    write_json(folder / "run.json", {"settings": settings, "origins": origins, "data": {}})
    rows = [
        {"kind": "eval", "step": 10 * number, "masked_lm_accuracy": value, "masked_lm_loss": 5.0}
        for number, value in enumerate(accuracies, start=1)
    ]
    write_text(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    write_json(folder / "model" / "config.json", {})


def finetuning(folder: Path, last: float = 0.61234567, best: float = 0.7, *, rate: float = 2e-5, seed: int = 1) -> None:
    settings: dict[str, Json] = {"task.name": "cola", "model.start": "models/mine"}
    settings |= {"optim.learning_rate": rate, "train.steps": 40, "train.seed": seed}
    origins: dict[str, Json] = {"optim.learning_rate": f"command line: optim.learning_rate={rate}"}
    run: dict[str, Json] = {"litebert": "0.1.0", "settings": settings, "origins": origins}
    write_json(folder / "run.json", {**run, "data": {"dev examples": 4}, "environment": {}})
    write_text(folder / "metrics.jsonl", '{"kind": "train", "step": 40, "loss": 0.5}\n')
    write_json(folder / "model" / "config.json", {})
    result: dict[str, Json] = {"task": "cola", "key_measure": "matthews", "evaluations": 4}
    result |= {"last": {"step": 40, "matthews": last}, "best": {"step": 20, "matthews": best}}
    write_json(folder / "result.json", {**result, "fresh": [], "seed": seed})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    pretraining(tmp_path / "mini")
    finetuning(tmp_path / "cola")
    for seed, last in {1: 0.5, 2: 0.6, 10: 0.1}.items():
        finetuning(tmp_path / "glue" / "cola" / f"seed-{seed}", last, seed=seed)
    return tmp_path


FIELDS = ("name", "kind", "task", "model", "seeds", "step", "of", "finished", "measure", "last", "best", "doubts")
LISTED = [
    ("cola", "fine-tuning", "cola", "models/mine", 1, 40, 40, True, "matthews", 0.6123, 0.7, None),
    ("glue/cola", "fine-tuning", "cola", "models/mine", 3, 40, 40, True, "matthews", 0.5, 0.7, None),
    ("mini", "pretraining", None, "mini: 6 layers of 256", 1, 30, 30, True, "masked_lm_accuracy", 0.2, 0.3, None),
]


def test_every_run_is_one_line_with_the_same_numbers_in_every_format(runs: Path) -> None:
    words = ("runs", "list", "--runs", runs)
    assert litebert(*words, "--json").json == [dict(zip(FIELDS, row, strict=True)) for row in LISTED]
    numbers = [(row[-3], row[-2]) for row in LISTED]
    text = litebert(*words).stdout.splitlines()
    markdown = litebert(*words, "--markdown").stdout.splitlines()
    rows = list(csv.DictReader(litebert(*words, "--csv").stdout.split("\n")))
    assert [(float(row["last"]), float(row["best"])) for row in rows] == numbers
    assert [tuple(map(float, line.split()[-3:-1])) for line in text[1:]] == numbers
    cells = [line.strip("| ").split(" | ")[-3:-1] for line in markdown[2:]]
    assert [tuple(map(float, pair)) for pair in cells] == numbers
    assert text[0].split() == list(FIELDS)


def test_what_speaks_against_a_run_stands_in_the_list_and_in_the_comparison(tmp_path: Path) -> None:
    rows = [
        {"masked_lm_loss": 4.757, "masked_lm_accuracy": 0.3, "masked_lm_baseline": 0.05},
        {
            "masked_lm_loss": 4.98,
            "masked_lm_accuracy": 0.05,
            "masked_lm_baseline": 0.05,
            "sentence_order_accuracy": 0.52,
        },
    ]
    for name in ("one", "two"):
        pretraining(tmp_path / name)
        run = json.loads((tmp_path / name / "run.json").read_text())
        run["settings"]["train.eval_sequences"] = 256
        write_json(tmp_path / name / "run.json", run)
        lines = [json.dumps({"kind": "eval", "step": 30 * number} | row) for number, row in enumerate(rows)]
        write_text(tmp_path / name / "metrics.jsonl", "\n".join(lines) + "\n")

    listed = litebert("runs", "list", "--runs", tmp_path, "--json").json
    compared = litebert("runs", "compare", tmp_path / "one", tmp_path / "two").stdout
    for words in ("lowest, 4.757, at step 0", "commonest gets 5.0%", "52.0% right, no better than chance"):
        assert words in listed[0]["doubts"]
        assert words in compared


def test_runs_that_are_not_finished_damaged_or_absent_are_told_apart(runs: Path, tmp_path: Path) -> None:
    (runs / "cola" / "result.json").unlink()
    (runs / "cola" / "model" / "config.json").unlink()
    line = litebert("runs", "list", "--runs", runs).stdout.splitlines()[1]
    assert line.split() == ["cola", "fine-tuning", "cola", "models/mine", "1", "40", "40", "no", "-", "-", "-", "-"]

    (runs / "cola" / "result.json").write_text("{")
    damaged = litebert("runs", "list", "--runs", runs)
    assert [line.split()[0] for line in damaged.stdout.splitlines()] == ["name", "glue/cola", "mini"]
    assert damaged.code == 3
    assert "cola/result.json" in damaged.stderr

    (tmp_path / "empty").mkdir()
    empty = litebert("runs", "list", "--runs", tmp_path / "empty")
    assert (empty.code, f"no runs in {tmp_path / 'empty'}" in empty.stderr) == (0, True)
    says(litebert("runs", "list", "--runs", tmp_path / "none"), 1, "LB-655")


def test_only_settings_that_differ_are_compared_with_who_set_them(runs: Path) -> None:
    finetuning(runs / "faster", last=0.65, rate=1e-4)

    lines = litebert("runs", "compare", runs / "cola", runs / "faster").stdout.splitlines()

    assert lines[0] == "Settings that differ (who set them)"
    assert lines[1].split() == ["setting", str(runs / "cola"), str(runs / "faster")]
    rate = "optim.learning_rate"
    words = f"{rate} 2e-05 (command line: {rate}=2e-05) 0.0001 (command line: {rate}=0.0001)"
    assert " ".join(lines[2].split()) == words
    assert lines[3:5] == ["", "Measures"]
    assert ["last", "matthews", "0.6123", "0.6500"] in [line.split() for line in lines]
    assert ["best", "step", "20", "20"] in [line.split() for line in lines]


def test_a_comparison_has_the_same_numbers_in_every_format(runs: Path) -> None:
    words = ("runs", "compare", runs / "cola", runs / "glue" / "cola")
    as_json = litebert(*words, "--json").json
    rows = list(csv.DictReader(litebert(*words, "--csv").stdout.split("\n")))
    text, markdown = litebert(*words).stdout, litebert(*words, "--markdown").stdout

    seeds = str(runs / "glue" / "cola")
    told = next(m for m in as_json["measures"] if (m["of"], m["measure"]) == ("last", "matthews"))
    assert told["runs"][seeds] == {"median": 0.5, "mean": 0.4, "spread": 0.2646, "n": 3}
    of_seeds = [row for row in rows if row["run"] == seeds]
    found = {row["part"]: row["value"] for row in of_seeds if row["name"] == "matthews"}
    assert [found[f"last {name}"] for name in ("median", "mean", "spread", "n")] == ["0.5", "0.4", "0.2646", "3"]
    assert "0.5000 (mean 0.4000 ± 0.2646, n 3)" in text
    assert "| last | matthews | 0.6123 | 0.5000 (mean 0.4000 ± 0.2646, n 3) |" in markdown
    seed = next(row for row in of_seeds if row["name"] == "train.seed")
    assert json.loads(seed["value"]) == [1, 2, 10]
    assert as_json["settings"]["train.seed"][seeds]["value"] == [1, 2, 10]


def test_runs_of_both_kinds_are_compared(runs: Path) -> None:
    shown = litebert("runs", "compare", runs / "cola", runs / "mini").stdout

    assert "model.hidden_size" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["last", "masked_lm_accuracy", "-", "0.2000"] in rows
    assert ["best", "matthews", "0.7000", "-"] in rows


def test_listing_runs_loads_no_torch(runs: Path) -> None:
    code = (
        "import sys; from litebert.cli import cli\n"
        f"cli(['runs', 'list', '--runs', {str(runs)!r}], standalone_mode=False)\n"
        "print(sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.splitlines()[-1] == "[]"
