"""Two processes train what one trains: the same samples, the same losses, one
writer.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import litebert
from litebert.config import PretrainConfig
from litebert.distributed import World, join_world
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, write_folder
from litebert.launch import launched_as
from litebert.nn import AlbertForPretraining
from litebert.runs import read_metrics
from litebert.settings import resolve, settings_from_words
from litebert.tokenizer import Tokenizer
from litebert.train.beginning import begin
from tests.contract.tiny import weights
from tests.memory import require_proc
from tests.networks import SHAPE, config_for
from tests.waiting import exit_code, wait_until

SHORT = {
    "train.steps": 6,
    "train.batch_size": 6,
    "train.eval_every": 3,
    "train.save_every": 2,
    "train.log_every": 1,
}
SHORT |= {"train.precision": "fp32", "optim.learning_rate": 0.003}
CORPUS = {**SHORT, "train.loader_workers": 0}

JOBS = """
import json, os, signal, sys
import litebert
from litebert.train import loop
step, stop = loop.training_step, int(sys.argv[2])
def signalling(*args, **kwargs):  # a real SIGTERM in a step's update
    if kwargs["step"] == stop - 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return step(*args, **kwargs)
loop.training_step = signalling
for verb, arguments in json.loads(sys.argv[1]):
    try:
        code = getattr(litebert, verb)(**arguments, quiet=True).exit_code
    except litebert.LitebertError:  # a script may go on after an error
        code = arguments["name"] != "refused"
    if code:
        sys.exit(code)
"""
Job = tuple[str, dict[str, object]]


def _pretrain(corpus: Path, runs: Path, name: str) -> Job:
    settings = {f"model.{size}": value for size, value in SHAPE.items()}
    settings |= {**CORPUS, "objective.max_seq_length": 48, "train.eval_sequences": 40}
    return "pretrain", {
        "corpus": str(corpus),
        "runs": str(runs),
        "name": name,
        "settings": settings,
    }


def _together(jobs: list[Job], size: int, *, stop_after: int | None = None) -> None:
    """Run the jobs in processes that find each other only through the environment.

    With `stop_after` the last process is sent a SIGTERM in that step.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    shared = {
        **os.environ,
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    stops = [0] * (size - 1) + [stop_after or 0]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", JOBS, json.dumps(jobs), str(stop)],
            env={**shared, "RANK": str(place)},
        )
        for place, stop in enumerate(stops)
    ]
    expected = 0 if stop_after is None else 128 + signal.SIGTERM
    assert [exit_code(child) for child in children] == [expected] * size


@pytest.fixture(scope="module")
def teacher(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a network like BERT's: embeddings as wide as the layers, none of which are
    shared.
    """
    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = Tokenizer.load(small_model)
    config = config_for(tokenizer, embedding_size=32, sharing="none")
    write_folder(
        ModelFolder(
            AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))
        ),
        folder,
    )
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def runs(
    corpus: Path,
    small_model: Path,
    teacher: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Run each job with one process and with two, and a pretraining with one and then
    with two.
    """
    folder = tmp_path_factory.mktemp("runs")
    verbs = ("liked", "left", "praised", "cursed")
    rows = [
        f"{'so ' * (n % 5)}they {verbs[n % 4]} the film,{('good', 'bad')[n % 2]}\n"
        for n in range(48)
    ]
    (folder / "films.csv").write_text("text,verdict\n" + "".join(rows))

    def jobs(name: str) -> list[Job]:
        settings = {
            **CORPUS,
            "model.embedding_size": 16,
            "objective.max_seq_length": 32,
            "train.eval_sequences": 12,
        }
        settings |= {"distil.texts": 5, "distil.text_length": 16}
        distil = {"teacher": str(teacher), "corpus": str(corpus), "settings": settings}
        settings = {**SHORT, "optim.learning_rate": 0.001, "train.micro_batch_size": 2}
        # each process draws its own dropout
        settings |= {"model.classifier_dropout_prob": 0.0}
        finetune = {
            "task": str(folder / "films.csv"),
            "model": str(small_model),
            "settings": settings,
        }
        others = {"distil": distil, "finetune": finetune}
        made = [
            (verb, {**options, "runs": str(folder), "name": f"{verb}-{name}"})
            for verb, options in others.items()
        ]
        return [_pretrain(corpus, folder, f"pretrain-{name}"), *made]

    for verb, arguments in jobs("alone"):
        getattr(litebert, verb)(**arguments, quiet=True)
    joined_later = _pretrain(corpus, folder, "pretrain-joined")
    _together([joined_later], 1, stop_after=3)
    assert not (folder / "pretrain-joined" / "model").exists()
    _together(
        [_pretrain(corpus / "nowhere", folder, "refused"), *jobs("two"), joined_later],
        2,
    )
    return folder


def assert_alike(alone: Path, other: Path) -> None:
    """Require the same rows in two logs, but for the clock; gradient norms and a
    student's first steps may vary.
    """
    pairs = list(zip(read_metrics(alone), read_metrics(other), strict=True))
    assert len(pairs) > 6
    for expected, row in pairs:
        norms = [float(str(line.pop("gradient_norm", 0.0))) for line in (expected, row)]
        assert norms[1] == pytest.approx(norms[0], rel=1e-3)
        for line in (expected, row):
            line.pop("tokens_per_second", None)
        assert row.pop("kind") == expected.pop("kind")
        # Sums over processes are rounded in another order than those of one, by 1e-6
        # after a few steps. The first steps of a student are steep: what rounds
        # differently in one grows in the next.
        near = 1e-4 if "vector_error" in row and row["step"] != 1 else 1e-5
        assert row == pytest.approx(expected, rel=near, abs=3e-7)


@pytest.mark.parametrize(
    "verb", ["pretrain-two", "pretrain-joined", "distil-two", "finetune-two"]
)
def test_every_row_of_the_log_equals_that_of_one_process(runs: Path, verb: str) -> None:
    assert_alike(runs / f"{verb.partition('-')[0]}-alone", runs / verb)


@pytest.mark.slow
def test_a_run_continues_with_one_then_two_then_four_processes(
    runs: Path, corpus: Path, tmp_path: Path
) -> None:
    job = _pretrain(corpus, tmp_path, "growing")
    _together([job], 1, stop_after=1)
    _together([job], 2, stop_after=3)
    assert not (tmp_path / "growing" / "model").exists()
    _together([job], 4)
    assert_alike(runs / "pretrain-alone", tmp_path / "growing")


def test_the_result_is_whole_and_written_once(runs: Path) -> None:
    for verb in ("pretrain", "distil", "finetune"):
        alone, two = (
            {path.name for path in (runs / f"{verb}-{name}").iterdir()}
            for name in ("alone", "two")
        )
        assert two == alone and litebert.load(runs / f"{verb}-two" / "model")
        assert len(list((runs / f"{verb}-two" / "checkpoints").iterdir())) <= 2


INCOMPLETE = [
    {"RANK": "0"},
    {"RANK": "0", "MASTER_PORT": "1"},
    {"WORLD_SIZE": "many"},
    {"WORLD_SIZE": "-1"},
]
INCOMPLETE += [{"RANK": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}]


@pytest.mark.parametrize("wrong", INCOMPLETE)
def test_an_incomplete_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str]
) -> None:
    assert launched_as() == (0, 1)
    for name, value in {"WORLD_SIZE": "2", **wrong}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LitebertError, match="LB-262"), join_world("gloo"):
        pass


def test_a_process_alone_ignores_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "a name of somebody else")
    with join_world("gloo") as world:
        assert world.size == 1


def test_too_small_a_batch_is_refused(corpus: Path, tmp_path: Path) -> None:
    resolved = resolve(
        PretrainConfig,
        settings_from_words([f"data.corpus={corpus}", "train.batch_size=3"]),
    )
    with pytest.raises(LitebertError, match="LB-282"):
        begin(tmp_path, resolved, data={}, world=World(0, 4))
    assert not begin(tmp_path, resolved, data={})


# torchrun: a process is killed or asked to stop; nothing is lost, no process is left
# behind

LONGER = {
    "train.steps": 60,
    "train.batch_size": 8,
    "train.eval_every": 20,
    "train.eval_sequences": 16,
}
LONGER |= {"train.save_every": 4, "train.log_every": 2, "train.loader_workers": 1}
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(corpus: Path, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a run of two processes; fail if any process is left
    at the end.
    """
    mark = {"LITEBERT_TEST_MARK": str(tmp_path)}

    def begin(name: str, *options: str) -> "subprocess.Popen[str]":
        launch = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--standalone",
            *options,
        ]
        settings = _pretrain(corpus, tmp_path, name)[1]["settings"] | LONGER
        words = [
            "pretrain",
            "--corpus",
            str(corpus),
            "--name",
            name,
            "--runs",
            str(tmp_path),
        ]
        command = [
            *launch,
            "-m",
            "litebert",
            *words,
            *(f"{name}={value}" for name, value in settings.items()),
        ]
        with open(tmp_path / f"{name}.log", "a") as log:
            return subprocess.Popen(
                command, env={**os.environ, **mark}, stdout=log, stderr=log, text=True
            )

    yield begin
    left = _processes(f"LITEBERT_TEST_MARK={tmp_path}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def _processes(*marks: str) -> list[int]:
    """Find the living processes whose environment has all of the given entries."""
    require_proc()
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            entries = (
                (folder / "environ").read_bytes().decode("utf-8", "replace").split("\0")
            )
        except OSError:
            continue
        if set(marks) <= set(entries):
            processes.append(int(folder.name))
    return processes


def _wait_for_step(run: Path, step: int) -> None:
    def is_reached() -> bool:
        if not (run / "metrics.jsonl").exists():
            return False
        logged = read_metrics(run)
        return bool(logged) and int(str(logged[-1]["step"])) >= step

    wait_until(is_reached, describe=lambda: f"{run} did not reach step {step}")


@pytest.mark.slow
def test_a_process_killed_a_restart_and_a_preemption_change_no_bit(
    start: Start, tmp_path: Path
) -> None:
    assert exit_code(start("whole")) == 0
    launcher = start("killed", "--max-restarts", "1")
    _wait_for_step(tmp_path / "killed", 10)
    # not those that prepare its batches
    ranks_own = min(_processes(f"LITEBERT_TEST_MARK={tmp_path}", "RANK=1"))
    os.kill(ranks_own, signal.SIGKILL)
    assert exit_code(launcher) == 0
    assert "resuming from step" in (tmp_path / "killed.log").read_text()
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")

    launcher = start("preempted")
    _wait_for_step(tmp_path / "preempted", 10)
    launcher.terminate()
    exit_code(launcher)
    assert not (tmp_path / "preempted" / "model").exists()
    step = max((tmp_path / "preempted" / "checkpoints").iterdir()).name
    reached = read_metrics(tmp_path / "preempted")[-1]["step"]
    assert int(step.removeprefix("step-")) >= int(str(reached))
    assert exit_code(start("preempted")) == 0
    assert weights(tmp_path / "preempted") == weights(tmp_path / "whole")


@pytest.mark.slow
def test_killing_the_launcher_leaves_no_process(start: Start, tmp_path: Path) -> None:
    launcher = start("orphaned")
    _wait_for_step(tmp_path / "orphaned", 2)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not _processes(f"LITEBERT_TEST_MARK={tmp_path}"))
    assert any((tmp_path / "orphaned" / "checkpoints").iterdir())
