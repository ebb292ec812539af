"""Fine-tuning as a whole: it learns, resumes exactly, and reports last and best apart."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from click.testing import CliRunner

from litebert.cli import cli
from litebert.config import AlbertConfig, FinetuneConfig, Origin, Resolved, Setting, resolve, settings_from_words
from litebert.errors import LitebertError
from litebert.files import hash_file
from litebert.folder import load_model, save_model
from litebert.hub import packaged_model
from litebert.hub.card import model_card
from litebert.inference import PACKAGED, Model
from litebert.inference.finetuned import Finetuned, ensemble_answers, measured
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.runs import Run, read_metrics, read_result
from litebert.tasks import finetuning
from litebert.tasks.finetuning import MAX_EPOCHS, suited, with_suited
from litebert.tokenizer import Tokenizer, train_tokenizer, write_tokenizer
from litebert.train.finetune import finetune, plan_finetuning, prepare

PEOPLE = ("Anna", "Bert", "Clara", "David", "Emma", "Felix")
GOOD = ("liked", "loved", "praised", "enjoyed")
BAD = ("hated", "left", "cursed", "feared")
Configure = Callable[..., Resolved[FinetuneConfig]]


def _rows(number: int, first: int = 0) -> str:
    lines = ["text,verdict"]
    for index in range(first, first + number):
        words, label = ((GOOD, "good"), (BAD, "bad"))[index % 2]
        who, other = PEOPLE[index % 6], PEOPLE[index // 6 % 6]
        lines.append(f'"{who} {words[index // 2 % 4]} the film, said {other}.",{label}')
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a small network with random weights and a vocabulary for the films."""
    folder = tmp_path_factory.mktemp("start")
    write_tokenizer(folder, train_tokenizer(_rows(96).splitlines(), vocab_size=50))
    config = AlbertConfig(
        vocab_size=Tokenizer.load(folder).vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
        initializer_range=0.2,
    )
    save_model(AlbertForPretraining(config, generator=torch.Generator().manual_seed(3)), folder)
    return folder


@pytest.fixture
def words(tmp_path: Path, start: Path) -> list[str]:
    """Give the settings of a run of seconds on films that somebody liked or not."""
    (tmp_path / "train.csv").write_text(_rows(96), encoding="utf-8")
    (tmp_path / "dev.csv").write_text(_rows(24, first=200), encoding="utf-8")
    return [
        "task.name=table",
        f"data.train={tmp_path / 'train.csv'}",
        f"data.dev={tmp_path / 'dev.csv'}",
        f"model.start={start}",
        "optim.learning_rate=0.005",
        "train.epochs=5",
        "train.batch_size=16",
        "train.save_every=4",
        "train.log_every=4",
    ]


@pytest.fixture
def configure(words: list[str]) -> Configure:
    """Return a function that makes the configuration with changes."""
    return lambda *changes: resolve(FinetuneConfig, settings_from_words([*words, *changes]))


def _run(configure: Configure, folder: Path, *changes: str) -> dict[str, object]:
    outcome = finetune(configure(*changes), folder, is_quiet=True)
    assert outcome.exit_code == 0
    result: dict[str, object] = json.loads((folder / "result.json").read_text())
    return result


def test_a_task_is_learnt_and_its_model_answers_on_strings(tmp_path: Path, configure: Configure) -> None:
    result = _run(configure, tmp_path / "run", "train.epochs=25")
    assert result["last"]["accuracy"] == 1.0
    model = Model.load(tmp_path / "run" / "model")
    assert model.verbs == ("classify", "embed")
    found = model.classify(["Emma loved the film, said Bert.", "Bert cursed the film."])
    assert [each.labels for each in found] == [("good",), ("bad",)]
    assert sum(found[0].values.values()) == pytest.approx(1)
    answers = (tmp_path / "run" / "answers" / "dev.jsonl").read_text().splitlines()
    assert len(answers) == 24
    assert json.loads(answers[0])["expected"] in ("good", "bad")


def test_the_last_evaluation_is_not_computed_again_for_the_answers(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = Mock(side_effect=finetuning.outputs_of)
    monkeypatch.setattr(finetuning, "outputs_of", outputs)
    run = tmp_path / "run"
    _run(configure, run, "train.eval_every=10")
    evaluations = [row for row in read_metrics(run) if row["kind"] == "eval"]
    assert outputs.call_count == len(evaluations) == 3
    answers = (run / "answers" / "dev.jsonl").read_bytes()
    (run / "result.json").unlink()
    shutil.rmtree(run / "answers")
    shutil.rmtree(run / "model")
    _run(configure, run, "train.eval_every=10")
    assert outputs.call_count == 4, "a run resumed after its last step has no evaluation to reuse"
    assert (run / "answers" / "dev.jsonl").read_bytes() == answers


def test_last_and_best_are_reported_apart_and_are_what_lies_on_disk(tmp_path: Path, configure: Configure) -> None:
    result = _run(configure, tmp_path / "run", "optim.learning_rate=0.002", "train.eval_every=5")
    rows = [row for row in read_metrics(tmp_path / "run") if row["kind"] == "eval"]
    accuracies = [row["accuracy"] for row in rows]
    assert result["best"]["accuracy"] == max(accuracies)
    assert result["best"]["step"] == rows[accuracies.index(max(accuracies))]["step"]
    assert result["last"]["step"] == rows[-1]["step"] == 30
    for kept in ("last", "best"):
        model = Finetuned.open(tmp_path / "run", kept=kept)
        measures, _, _ = measured([model], tmp_path / "train.csv", "dev")
        assert measures["accuracy"] == pytest.approx(result[kept]["accuracy"])


def test_training_that_stalls_ends_early_when_asked(tmp_path: Path, configure: Configure) -> None:
    changes = ("train.patience=2", "train.eval_every=3", "train.epochs=50")
    result = _run(configure, tmp_path / "run", *changes)
    assert result["last"]["step"] < 300
    assert result["last"]["step"] - result["best"]["step"] >= 6
    newest = max(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert newest == f"step-{result['last']['step']:09d}"  # the model is that of the last evaluation
    assert _run(configure, tmp_path / "run", *changes) == result


def _state(run: Path) -> dict[str, object]:
    rows = [{name: value for name, value in row.items() if name != "tokens_per_second"} for row in read_metrics(run)]
    last = sorted((run / "checkpoints").iterdir())[-1]
    files = [last / "model.safetensors", last / "optimizer.safetensors"]
    files += [run / kept / "model.safetensors" for kept in ("model", "best")]
    return {"rows": rows, "files": [hash_file(file) for file in files]}


class StopAt:
    """Ends a run when a row of this step is written."""

    def __init__(self, step: int) -> None:
        self.step = step

    def row(self, row: dict[str, object]) -> None:
        if row["step"] == self.step:
            raise KeyboardInterrupt


def test_a_choice_of_the_hardest_examples_resumes_exactly_and_visits_the_data_faster(
    tmp_path: Path, configure: Configure
) -> None:
    mining = configure("mining.pool=2", "train.log_every=1")
    finetune(mining, tmp_path / "whole", is_quiet=True)
    with pytest.raises(KeyboardInterrupt):
        finetune(mining, tmp_path / "stopped", is_quiet=True, listeners=(StopAt(6),))
    finetune(mining, tmp_path / "stopped", is_quiet=True)
    whole, stopped = (_state(tmp_path / name) for name in ("whole", "stopped"))
    assert stopped["files"] == whole["files"]
    assert max(row["step"] for row in read_metrics(tmp_path / "whole")) == 15  # 5 x 96 / (2 x 16)

    _run(configure, tmp_path / "uniform", "train.steps=1", "train.log_every=1")
    hard, uniform = (
        next(row["loss"] for row in read_metrics(tmp_path / name) if row["kind"] == "train")
        for name in ("whole", "uniform")
    )
    assert hard > uniform


def test_micro_batches_change_memory_and_not_the_numbers(tmp_path: Path, configure: Configure) -> None:
    whole = _run(configure, tmp_path / "whole")
    parts = _run(configure, tmp_path / "parts", "train.micro_batch_size=3")
    assert parts["last"] == whole["last"]
    losses = [
        [row["loss"] for row in read_metrics(tmp_path / name) if row["kind"] == "train"] for name in ("whole", "parts")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_an_ensemble_answers_with_the_mean_of_its_members(tmp_path: Path, configure: Configure) -> None:
    folders = [tmp_path / f"seed-{seed}" for seed in (1, 2)]
    for seed, folder in enumerate(folders, 1):
        _run(configure, folder, f"train.seed={seed}", "train.steps=2")
    members = [Finetuned.open(folder) for folder in folders]
    examples = members[0].dataset.read(tmp_path / "train.csv", "dev")
    alone = [member.answers(examples) for member in members]
    together = ensemble_answers(members, examples)
    for first, second, mean in zip(*alone, together, strict=True):
        for a, b, value in zip(first.values, second.values, mean.values, strict=True):
            assert value == pytest.approx((a + b) / 2)


def test_the_control_takes_nothing_from_the_model(tmp_path: Path, configure: Configure) -> None:
    changes = ("train.steps=1", "optim.learning_rate=1e-9")
    result = _run(configure, tmp_path / "random", *changes, "model.random=true")
    assert result["fresh"] == []
    _run(configure, tmp_path / "pretrained", *changes)
    words = [
        load_model(tmp_path / name / "model").network.albert.embedding.word.weight for name in ("random", "pretrained")
    ]
    start = load_model(Path(configure().config.model.start)).network.albert.embedding.word.weight
    assert torch.allclose(words[1], start, atol=1e-5)
    assert not torch.allclose(words[0], start, atol=1e-2)


def test_deeper_layers_learn_more_slowly_when_asked(tmp_path: Path, configure: Configure) -> None:
    from litebert.train.finetune import rate_scales

    _run(configure, tmp_path / "run", "train.steps=1", "optim.layer_decay=0.5")
    network = load_model(tmp_path / "run" / "model").network
    assert isinstance(network, AlbertForTask)
    scales = rate_scales(network, decay=0.5)
    assert scales["albert.embedding.word.weight"] == 0.5**3
    assert scales["albert.attention.0.query.weight"] == 0.5**1.5
    assert "head.dense.weight" not in scales
    assert rate_scales(network) == {}


def test_a_plan_says_what_a_run_needs_and_writes_nothing(tmp_path: Path, configure: Configure) -> None:
    plan = plan_finetuning(configure(), tmp_path / "run")
    assert plan.prepared.num_examples == 96
    assert plan.prepared.config.train.steps == 30
    assert plan.prepared.config.train.eval_every == 6
    assert plan.needs.seconds_per_step > 0
    assert not (tmp_path / "run").exists()


def test_new_files_are_answered_when_the_training_file_is_gone(tmp_path: Path, configure: Configure) -> None:
    _run(configure, tmp_path / "run", "train.steps=2")
    before = Finetuned.open(tmp_path / "run")
    new = tmp_path / "new.csv"
    new.write_text("text\nAnna loved it.\nBert left.\n", encoding="utf-8")
    expected = before.answers(before.dataset.read(new, "test"))
    (tmp_path / "train.csv").unlink()
    after = Finetuned.open(tmp_path / "run")
    examples = after.dataset.read(new, "test")
    assert after.answers(examples) == expected
    (file,) = after.dataset.submission("test", examples, expected).values()
    assert len(file.splitlines()) == 3


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_eight_bit_copy_of_a_run_is_measured_beside_it(
    words: list[str], configure: Configure, tmp_path: Path, precision: str
) -> None:
    run = tmp_path / "run"
    last = _run(configure, run, f"train.precision={precision}")["last"]
    command = ["quantize", str(run), str(tmp_path / "int8"), "--data", str(tmp_path / "dev.csv")]
    result = CliRunner().invoke(cli, [*command, "--evaluate", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(last, dict)
    difference = 1e-6 if precision == "fp32" else 0.1
    assert found["before"]["dev"]["accuracy"] == pytest.approx(last["accuracy"], abs=difference)
    assert abs(found["after"]["dev"]["accuracy"] - last["accuracy"]) < 0.1
    again = CliRunner().invoke(cli, command)
    assert isinstance(again.exception, LitebertError)
    assert again.exception.code == "LB-619"
    shutil.copytree(run / "model", tmp_path / "alone")
    command[1:3] = [str(tmp_path / "alone"), str(tmp_path / "other")]
    nameless = CliRunner().invoke(cli, command)
    assert isinstance(nameless.exception, LitebertError)
    assert nameless.exception.code == "LB-613"


def test_result_and_card_say_what_the_commonest_label_gets(configure: Configure, tmp_path: Path) -> None:
    run = tmp_path / "run"
    finetune(configure("optim.learning_rate=1e-9", "train.epochs=1"), run, is_quiet=True)
    result = read_result(run)
    assert result is not None
    assert result.baseline["accuracy"] == 0.5
    assert result.doubts
    card = model_card(run / "model")
    assert "commonest label" in card
    assert "**Warning**" in card


def test_small_networks_get_measured_defaults_and_typed_values_stay(words: list[str], tmp_path: Path) -> None:
    free = [w for w in words if not w.startswith(("optim.learning_rate", "train.epochs"))]
    recipe = {"optim.learning_rate": Setting(2e-5, Origin("recipe", "table"))}
    prepared = prepare(resolve(FinetuneConfig, recipe, settings_from_words(free)), tmp_path / "a")
    assert prepared.config.optim.learning_rate == suited(32, 96, 16).learning_rate
    assert prepared.resolved.origins["optim.learning_rate"] == Origin("suited")
    assert prepared.config.train.epochs == MAX_EPOCHS
    typed = settings_from_words([*free, "optim.learning_rate=2e-5", "train.steps=3"])
    prepared = prepare(resolve(FinetuneConfig, recipe, typed), tmp_path / "b")
    assert prepared.config.optim.learning_rate == 2e-5
    assert prepared.config.train.steps == 3


def test_published_sizes_keep_the_recipe() -> None:
    settings = settings_from_words(["task.name=sst2", "data.folder=x", "model.start=y"])
    resolved = resolve(FinetuneConfig, settings)
    assert resolved.config.optim.head_rate_scale == 1
    assert with_suited(resolved, 768, 500) is resolved
    assert with_suited(resolved, 767, 500).config.optim.head_rate_scale == 1
    assert with_suited(resolved, 767, 500) is not resolved


def test_a_run_learns_from_a_fine_tuned_one(configure: Configure, tmp_path: Path) -> None:
    finetune(configure("train.epochs=25"), tmp_path / "teacher", is_quiet=True)
    teacher = f"teacher.run={tmp_path / 'teacher'}"
    taught = configure(teacher, "teacher.weight=1.0", "train.epochs=25")
    finetune(taught, tmp_path / "student", is_quiet=True)
    result = read_result(tmp_path / "student")
    assert result is not None
    assert result.last.measures["accuracy"] > result.baseline["accuracy"]
    assert "teacher" in Run.open(tmp_path / "student").file.data


def test_a_run_has_a_model_only_once_its_card_is_written(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    run, short = tmp_path / "run", configure("train.epochs=1")
    with monkeypatch.context() as patched:
        patched.setattr("litebert.train.run.write_card", cut_off)
        with pytest.raises(KeyboardInterrupt):
            finetune(short, run, is_quiet=True)
    assert not (run / "model").exists()
    assert finetune(short, run, is_quiet=True).model == run / "model"
    assert str(run / "model") in (run / "model" / "README.md").read_text()
    assert (run / "best" / "README.md").is_file()
    assert not list(run.glob("*.partial-*"))


def test_without_a_model_training_starts_from_the_packaged_one(words: list[str], start: Path, tmp_path: Path) -> None:
    data = ["finetune", str(tmp_path / "train.csv"), "--runs", str(tmp_path / "runs")]
    planned = CliRunner().invoke(cli, [*data, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert PACKAGED in planned.stdout.splitlines()[0]
    done = CliRunner().invoke(cli, [*data, "train.steps=1", "task.max_length=16"])
    assert done.exit_code == 0, done.output
    assert PACKAGED in done.stderr.splitlines()[0]
    assert Run.open(tmp_path / "runs" / "train").settings["model.start"] == str(packaged_model())
    assert "--model" not in model_card(tmp_path / "runs" / "train" / "model")


CHILD = """
import json, sys
from pathlib import Path
from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.train.finetune import finetune
import torch
from click.testing import CliRunner
torch.set_num_threads(1)
words = json.loads(sys.argv[2])
sys.exit(finetune(resolve(FinetuneConfig, settings_from_words(words)), Path(sys.argv[1])).exit_code)
"""


def test_a_run_killed_again_and_again_equals_an_uninterrupted_one(tmp_path: Path, words: list[str]) -> None:
    def start(run: str) -> subprocess.Popen[bytes]:
        changes = [*words, "train.epochs=20", "model.hidden_dropout_prob=0.1"]
        command = [sys.executable, "-c", CHILD, str(tmp_path / run), json.dumps(changes)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    assert start("whole").wait() == 0
    metrics, killed = tmp_path / "killed" / "metrics.jsonl", 0
    for lines in (4, 20):
        child = start("killed")
        while child.poll() is None:
            if metrics.exists() and len(metrics.read_bytes().splitlines()) >= lines:
                child.send_signal(signal.SIGKILL)
                killed += 1
            time.sleep(0.005)
    assert killed
    while start("killed").wait():
        pass
    assert _state(tmp_path / "killed") == _state(tmp_path / "whole")
