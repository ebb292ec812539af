"""`litebert runs list` and `litebert runs compare`: the same numbers in every
format.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from litebert import Run
from litebert.files import write_json, write_text
from tests.contract.shell import assert_error, litebert
from tests.report.test_pages import finetuned


def pretraining(folder: Path, *evaluations: dict[str, float]) -> None:
    """Write the files of a finished pretraining."""
    settings = {
        "model.num_hidden_layers": 6,
        "model.hidden_size": 256,
        "train.steps": 30,
    }
    origins = {"model.hidden_size": "preset mini (flag)", "train.steps": "default"}
    log = [
        {"kind": "eval", "step": 10 * n} | row
        for n, row in enumerate(evaluations, start=1)
    ]
    write_json(
        folder / "run.json",
        {"litebert": "0.1.0", "settings": settings, "origins": origins, "data": {}},
    )
    write_text(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in log))
    write_json(folder / "model" / "config.json", {})


def finetuning(
    parent: Path, name: str, last: float = 0.61234567, **settings: Any
) -> None:
    finetuned(parent, name, task="cola", accuracies=(0.7, last), doubts=(), **settings)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    accuracies = (0.1, 0.3, 0.2)
    pretraining(
        tmp_path / "mini",
        *({"masked_lm_accuracy": value, "masked_lm_loss": 5.0} for value in accuracies),
    )
    finetuning(tmp_path, "cola")
    for seed, last in {1: 0.5, 2: 0.6, 10: 0.1}.items():
        finetuning(tmp_path, f"glue/cola/seed-{seed}", last, seed=seed)
    return tmp_path


FINETUNED = {
    "kind": "fine-tuning",
    "task": "cola",
    "model": "models/mine",
    "step": 40,
    "of": 40,
    "finished": True,
    "measure": "accuracy",
    "doubts": None,
}
PRETRAINED = {
    "kind": "pretraining",
    "task": None,
    "model": "mini: 6 layers of 256",
    "step": 30,
    "of": 30,
    "finished": True,
    "measure": "masked_lm_accuracy",
    "doubts": None,
}
LISTED = [
    {"name": "cola", "seeds": 1, "last": 0.6123, "best": 0.7, **FINETUNED},
    {"name": "glue/cola", "seeds": 3, "last": 0.5, "best": 0.7, **FINETUNED},
    {"name": "mini", "seeds": 1, "last": 0.2, "best": 0.3, **PRETRAINED},
]


def cells_of(line: str) -> list[str]:
    """Return the cells of a line of Markdown."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def numbers_of(rows: Iterable[dict[str, str]]) -> list[tuple[float, float]]:
    """Return the last and the best value of each run in a table."""
    return [(float(row["last"]), float(row["best"])) for row in rows]


def test_a_run_without_its_result_is_printed(runs: Path) -> None:
    (runs / "cola" / "result.json").unlink()
    assert "model" in str(Run(runs / "cola"))


def test_every_run_is_one_line_with_the_same_numbers_in_every_format(
    runs: Path,
) -> None:
    words = ("runs", "list", "--runs", runs)
    assert litebert(*words, "--json").json == LISTED
    expected = [(row["last"], row["best"]) for row in LISTED]

    heading, *lines = litebert(*words).stdout.splitlines()
    assert heading.split() == ["name", "trained", "steps", "measure", "last", "best"]
    printed = list[tuple[float, float]]()
    for line in lines:
        *_, last, best = line.split()
        printed.append((float(last), float(best)))
    assert printed == expected

    table = litebert(*words, "--csv").stdout.split("\n")
    assert numbers_of(csv.DictReader(table)) == expected

    names, _, *rows = map(cells_of, litebert(*words, "--markdown").stdout.splitlines())
    markdown = [dict(zip(names, cells, strict=True)) for cells in rows]
    assert numbers_of(markdown) == expected


def test_doubts_about_a_run_are_in_the_list_and_in_the_comparison(
    tmp_path: Path,
) -> None:
    first = {
        "step": 0,
        "masked_lm_loss": 4.757,
        "masked_lm_accuracy": 0.3,
        "masked_lm_baseline": 0.05,
    }
    then = {
        "step": 30,
        "masked_lm_loss": 4.98,
        "masked_lm_accuracy": 0.05,
        "masked_lm_baseline": 0.05,
    }
    for name in ("one", "two"):
        pretraining(
            tmp_path / name,
            first,
            {
                **then,
                "sentence_order_accuracy": 0.62,
                "sentence_order_pairs": 37,
            },
        )
    listed = litebert("runs", "list", "--runs", tmp_path, "--json").json
    done = litebert("runs", "compare", tmp_path / "one", tmp_path / "two")
    assert "lowest" not in done.stdout
    compared = done.stderr
    for words in (
        "lowest, 4.757, at step 0",
        "most common one gets 5.0%",
        "62.0% right, no better than chance on 37 pairs",
    ):
        assert words in listed[0]["doubts"] and words in compared


@pytest.mark.parametrize(("num_pairs", "is_few"), [(1, True), (1_000, False)])
def test_few_held_out_rows_are_a_reason_to_hold_out_more(
    num_pairs: int, is_few: bool, tmp_path: Path
) -> None:
    accuracy = 1.0 if is_few else 0.5
    row = {
        "masked_lm_accuracy": 1 / 3,
        "masked_lm_baseline": 1 / 3,
        "sentence_order_accuracy": accuracy,
        "sentence_order_pairs": num_pairs,
    }
    pretraining(tmp_path, row)
    file = json.loads((tmp_path / "run.json").read_text())
    file["data"] = {"held-out tokens": 15 * num_pairs}
    write_json(tmp_path / "run.json", file)
    of_words, of_order = Run(tmp_path).warnings
    for warning in (of_words, of_order):
        assert ("raise --held-out" in warning) == is_few
        assert ("train longer" in warning) == (not is_few)
    assert ("next to nothing" in of_words) == (not is_few)
    assert ("on 1 pair:" in of_order) == is_few


def test_lists_and_comparisons_fit_the_terminal(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = "of-a-name/that-is-longer-than-most/and-two-levels-deep"
    finetuning(runs, deep)
    doubt = {"masked_lm_accuracy": 0.05, "masked_lm_baseline": 0.05}
    pretraining(runs / "doubtful", doubt)
    monkeypatch.setenv("COLUMNS", "80")
    listed = litebert("runs", "list", "--runs", runs)
    monkeypatch.chdir(runs)
    compared = litebert("runs", "compare", "cola", deep, "doubtful")
    for shown in (listed, compared):
        assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "next to nothing" in compared.stderr
    (warning,) = [line for line in listed.stderr.splitlines() if "warning" in line]
    assert warning.startswith("warning doubtful: the model predicts 5.0%")
    assert len(warning) <= 80


def test_unfinished_damaged_and_missing_runs_are_distinguished(
    runs: Path, tmp_path: Path
) -> None:
    (runs / "cola" / "model" / "config.json").unlink()
    assert not Run(runs / "cola").is_finished  # a result is written before the model
    (runs / "cola" / "result.json").unlink()
    line = litebert("runs", "list", "--runs", runs).stdout.splitlines()[1]
    assert line.split() == [
        "cola",
        "cola",
        "from",
        "models/mine",
        "40",
        "of",
        "40",
        "-",
        "-",
        "-",
    ]

    (runs / "cola" / "result.json").write_text("{")
    damaged = litebert("runs", "list", "--runs", runs)
    assert [line.split()[0] for line in damaged.stdout.splitlines()] == [
        "name",
        "glue/cola",
        "mini",
    ]
    assert (damaged.code, "cola/result.json" in damaged.stderr) == (3, True)

    (tmp_path / "empty").mkdir()
    empty = litebert("runs", "list", "--runs", tmp_path / "empty")
    assert (empty.code, f"no runs in {tmp_path / 'empty'}" in empty.stderr) == (0, True)
    assert_error(litebert("runs", "list", "--runs", tmp_path / "none"), 1, "LB-655")


def test_only_settings_that_differ_are_compared_with_their_origins(runs: Path) -> None:
    finetuning(runs, "faster", 0.65, optim__learning_rate=1e-4)
    lines = litebert(
        "runs", "compare", runs / "cola", runs / "faster"
    ).stdout.splitlines()
    assert lines[0].split() == ["of", "name", str(runs / "cola"), str(runs / "faster")]
    assert (
        " ".join(lines[1].split())
        == "setting optim.learning_rate 2e-05 (recipe cola) 0.0001 (flag)"
    )
    cells = [line.split() for line in lines]
    assert cells[2][:2] == ["last", "step"]
    assert ["last", "accuracy", "0.6123", "0.6500"] in cells
    assert ["best", "step", "20", "20"] in cells

    # of both kinds
    lines = litebert(
        "runs", "compare", runs / "cola", runs / "mini"
    ).stdout.splitlines()
    cells = [line.split() for line in lines]
    assert ["setting", "model.hidden_size"] in [cell_row[:2] for cell_row in cells]
    assert ["last", "masked_lm_accuracy", "-", "0.2000"] in cells
    assert ["best", "accuracy", "0.7000", "-"] in cells


def test_a_comparison_gives_medians_of_seeds_with_means_and_deviations_below(
    runs: Path,
) -> None:
    one = str(runs / "cola")
    seeds = str(runs / "glue" / "cola")
    words = ("runs", "compare", one, seeds)
    shown = {
        (row["of"], row["name"]): (row[one], row[seeds])
        for row in litebert(*words, "--json").json
    }
    assert shown["last", "accuracy"] == (0.6123, 0.5)
    assert shown["last, mean of 3", "accuracy"] == (None, 0.4)
    assert shown["last, deviation", "accuracy"] == (None, 0.2646)
    assert shown["setting", "train.seed"] == ("1 (flag)", "[1, 2, 10] (flag)")
    assert (
        "| last | accuracy | 0.6123 | 0.5000 |" in litebert(*words, "--markdown").stdout
    )
