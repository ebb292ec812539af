"""`litebert glue`: real runs of a tiny network on every task, in seconds."""

import csv
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from litebert.cli import cli
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.files import read_json
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining
from litebert.tasks.named.glue import GLUE_TASKS, SUBMISSION_FILES, GlueTask
from litebert.tokenizer import Tokenizer, train_tokenizer, write_tokenizer

QUICK = ("train.steps=2", "train.batch_size=4", "optim.warmup_steps=1", "train.precision=fp32")
PEOPLE = ("Anna", "Bert", "Clara", "David")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a tiny network with random weights."""
    folder = tmp_path_factory.mktemp("start")
    texts = [text(number) for number in range(100)]
    write_tokenizer(folder, train_tokenizer(texts, vocab_size=28))
    config = AlbertConfig(
        vocab_size=Tokenizer.load(folder).vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    save_model(AlbertForPretraining(config, generator=torch.Generator().manual_seed(3)), folder)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Give all tasks of GLUE, a few lines each."""
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
        cells = {name: text(number + place) for place, name in enumerate(task.texts)}
        labels = task.written or task.labels or ("1.5", "4.25")
        cells |= {"index": str(number), task.label: labels[number % len(labels)]}
        lines.append("\t".join(cells.get(name, "x") for name in header))
    name = task.files[0] if task.files else f"{task.folder}/{split}.tsv"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def text(number: int) -> str:
    who, whom = PEOPLE[number % 4], PEOPLE[number // 4 % 4]
    return f"{who} sees {whom} in the garden."


def called(start: Path, data: Path, *words: object) -> Result:
    runs = data.parent / "runs"
    given = ["glue", "--model", start, "--data", data, "--runs", runs, "--quiet", *QUICK, *words]
    return CliRunner().invoke(cli, [str(word) for word in given])


def rows(result: Result) -> Sequence[dict[str, object]]:
    assert result.exit_code == 0, result.exception
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_tasks_are_trained_and_stand_in_one_table_beside_the_paper(start: Path, data: Path) -> None:
    found = rows(called(start, data, "--tasks", "rte,stsb", "--json"))

    runs = data.parent / "runs" / "glue"
    reached = read_json(runs / "rte" / "result.json", command="")
    assert isinstance(reached["last"], dict)
    assert isinstance(reached["best"], dict)
    assert found[0] == {
        "task": "rte",
        "measure": "accuracy",
        "last": round(100 * float(str(reached["last"]["accuracy"])), 2),
        "best": round(100 * float(str(reached["best"]["accuracy"])), 2),
        "seeds": 1,
        "published": 89.2,
        "model": "xxlarge-v1",
        "source": "Table 9, row ALBERT (1.5M)",
    }
    assert (found[1]["task"], found[1]["measure"], found[1]["published"]) == ("stsb", "pearson", 93.0)
    assert (runs / "rte" / "report.html").is_file()
    assert (runs / "stsb" / "report.html").is_file()


def test_the_same_command_trains_nothing_again_and_prints_the_same(start: Path, data: Path) -> None:
    first = called(start, data, "--tasks", "cola", "--csv")
    log = data.parent / "runs" / "glue" / "cola" / "metrics.jsonl"
    before = log.stat().st_mtime_ns

    again = called(start, data, "--tasks", "cola", "--csv")

    assert again.stdout == first.stdout
    assert log.stat().st_mtime_ns == before
    (row,) = csv.DictReader(first.stdout.splitlines())
    assert (row["task"], row["measure"], row["published"]) == ("cola", "matthews", "71.4")


def test_several_seeds_are_one_line_of_medians(start: Path, data: Path) -> None:
    shown = called(start, data, "--tasks", "rte", "--seeds", "1,2,3", "--markdown")

    line = shown.stdout.splitlines()[2].strip("| ").split(" | ")
    folder = data.parent / "runs" / "glue" / "rte"
    results = [read_json(folder / f"seed-{seed}" / "result.json", command="") for seed in (1, 2, 3)]
    values = sorted(float(str(result["last"]["accuracy"])) for result in results)  # type: ignore[index,call-overload]
    assert line[:2] == ["rte", "accuracy"]
    assert float(line[2]) == round(100 * values[1], 2)
    assert line[4] == "3"
    assert (folder / "report.html").is_file()


def test_the_table_says_how_it_is_to_be_read(start: Path, data: Path) -> None:
    shown = called(start, data, "--tasks", "wnli")

    assert shown.stdout.splitlines()[0].split()[:4] == ["task", "measure", "last", "best"]
    assert "the best evaluation, which was chosen on dev itself" in shown.stderr
    assert f"started from {start}, which is none of the published models" in shown.stderr


@pytest.mark.slow
def test_all_tasks_leave_as_one_archive(start: Path, data: Path) -> None:
    output = data.parent / "submission"

    found = rows(called(start, data, "--submission", output, "--json"))

    assert [row["task"] for row in found] == [task.name for task in GLUE_TASKS if task.name != "ax"]
    with zipfile.ZipFile(output / "glue.zip") as archive:
        assert archive.namelist() == list(SUBMISSION_FILES)
        for name in SUBMISSION_FILES:
            lines = archive.read(name).decode().splitlines()
            assert lines[0] == "index\tprediction"
            assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2", "3"]
            assert (output / name).read_text("utf-8").splitlines() == lines


def test_what_cannot_be_submitted_is_refused_before_training(start: Path, data: Path) -> None:
    some = called(start, data, "--tasks", "rte", "--submission", data.parent / "submission")
    (data / "QQP" / "test.tsv").unlink()
    without = called(start, data, "--submission", data.parent / "submission")

    assert isinstance(some.exception, LitebertError)
    assert "LB-826" in str(some.exception)
    assert isinstance(without.exception, LitebertError)
    assert "LB-820" in str(without.exception)
    assert not (data.parent / "runs").exists()


def test_a_task_without_its_files_is_refused_before_the_others_are_trained(start: Path, data: Path) -> None:
    (data / "RTE" / "dev.tsv").unlink()

    shown = called(start, data, "--tasks", "wnli,rte")

    assert "LB-820" in str(shown.exception)
    assert not (data.parent / "runs").exists()


def test_tasks_that_are_not_there_are_refused(start: Path, data: Path, tmp_path: Path) -> None:
    typo = called(start, data, "--tasks", "mrcp")
    diagnostic = called(start, data, "--tasks", "ax")
    nothing = called(start, tmp_path / "none")

    assert "LB-529" in str(typo.exception)
    assert "did you mean mrpc?" in str(typo.exception)
    assert "LB-529" in str(diagnostic.exception)
    assert "LB-530" in str(nothing.exception)
    assert "no such folder" in str(nothing.exception)


def test_only_the_tasks_of_the_folder_are_trained(start: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (rte,) = [task for task in GLUE_TASKS if task.name == "rte"]
    for split in rte.splits:
        write_split(folder, rte, split)

    assert [row["task"] for row in rows(called(start, folder, "--json"))] == ["rte"]
