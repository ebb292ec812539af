"""No command loses a file: not one that it finds, not one that appears meanwhile, and
it leaves nothing unfinished behind when it is stopped.
"""

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from litebert.files import clear_stale, staging
from litebert.tokenizer import Tokenizer
from tests.kills import begin, operations
from tests.memory import run_in_child

from .shell import QUICK, assert_error, litebert, tree
from .tiny import PRETRAIN, Desk

PRECIOUS = b"years of work"


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PRECIOUS)
    return path


# ---- the folder of a run -------------------------------------------------------------

FOUND = [
    "model/thesis.txt",
    "best/thesis.txt",
    "report.html",
    "answers/dev.jsonl",
    "checkpoints/step-000000001/a",
    "x.partial-1.txt",
    "events.out.tfevents.1",
    "seed-1/thesis.txt",
    "run.json",
    ".lock",
]


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("verb", ["finetune", "pretrain", "seeds"])
def test_a_folder_that_is_no_run_is_refused_and_unchanged(
    desk: Desk, tmp_path: Path, verb: str, name: str
) -> None:
    write(tmp_path / "runs" / "t" / name)
    words = {
        "finetune": ("finetune", desk.table("reviews.csv"), "--model", desk.base),
        "pretrain": ("pretrain", desk.stories, *PRETRAIN),
        "seeds": ("finetune", desk.table("reviews.csv"), "--seeds", "1,2"),
    }[verb]
    done = litebert(*words, "--name", "t", *QUICK, cwd=tmp_path)
    assert_error(done, 1, "LB-652", "runs/t", "--name")
    assert tree(tmp_path) == {f"runs/t/{name}": PRECIOUS}


@pytest.mark.parametrize(
    ("runs", "name", "said"),
    [
        ("runs/file", "t", ("LB-652", "runs/file is a file")),
        ("runs", "file/t", ("LB-652", "runs/file is a file")),
        ("runs", "a" * 201, ("LB-920", "201 bytes", "a shorter --name")),
        ("runs", "Ä" * 101, ("LB-920", "202 bytes", "a shorter --name")),
    ],
)
def test_a_run_has_a_folder_and_a_name_that_disks_take(
    desk: Desk, tmp_path: Path, runs: str, name: str, said: tuple[str, ...]
) -> None:
    write(tmp_path / "runs" / "file")
    words = ("finetune", desk.table("reviews.csv"), "--model", desk.base)
    done = litebert(*words, "--runs", runs, "--name", name, *QUICK, cwd=tmp_path)
    assert_error(done, 1, *said)
    assert "results" not in done.stderr  # refused before the plan
    assert tree(tmp_path) == {"runs/file": PRECIOUS}


def test_an_empty_folder_and_a_begun_run_are_accepted(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "runs" / "t").mkdir(parents=True)
    words = ("finetune", desk.table("reviews.csv"), "--model", desk.base)
    named = (*words, "--name", "t", *QUICK)
    assert litebert(*named, cwd=tmp_path).ok
    run = tmp_path / "runs" / "t"
    # as if the process had been killed before it wrote the model
    (run / "model" / "config.json").unlink()
    (run / "run.json").unlink()
    kept = [write(run / name) for name in ("model/thesis.txt", "best/notes/a.txt")]
    assert litebert(*named, cwd=tmp_path).ok
    assert [path.read_bytes() for path in kept] == [PRECIOUS] * 2
    assert (run / "model" / "config.json").is_file()


# ---- what appears while a command runs -----------------------------------------------

COMMANDS = {
    "import": "import huggingface BASE/model --output out",
    "quantize": "quantize BASE out --texts STORIES",
    "average": "runs average BASE --output out",
    "average --force": "runs average BASE --output out --force",
    "predict": "predict RUNS/reviews --data REVIEWS --output out",
    "predict --force": "predict RUNS/reviews --data REVIEWS --output out --force",
    "embed": "embed STORIES --model BASE --output out.npy",
    "filter": "corpus filter STORIES --output out.jsonl",
    "onnx": "export onnx BASE out.onnx",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_appears_under_an_output_while_a_command_runs_stays(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    words = COMMANDS[name].replace("BASE", str(desk.base)).split()
    output = tmp_path / next(word for word in words if word.startswith("out"))
    made = staging.StagingFolder.make

    def make(final: Path) -> staging.StagingFolder:
        is_output = final.name == output.name
        if is_output and not output.exists() and not output.is_symlink():
            write(output / "thesis.txt" if not output.suffix else output)
        return made(final)

    monkeypatch.setattr(staging.StagingFolder, "make", make)
    done = desk.run(tmp_path, *words)
    # a folder in which nothing is replaced may get what --force asked for
    expected = (0,) if name.endswith("--force") else (1,)
    assert done.code in expected, done
    if done.code:
        assert_error(done, 1, "LB-619")
    thesis = output / "thesis.txt" if output.is_dir() else output
    assert thesis.read_bytes() == PRECIOUS
    assert not list(tmp_path.glob("*.partial-*"))


# ---- kills and signals ---------------------------------------------------------------


def test_a_vocabulary_is_whole_or_absent_whenever_its_training_is_killed(
    desk: Desk, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    words = ("tokenizer", "train", desk.stories, "--vocab-size", 60, "--cased")

    def train(name: str) -> Callable[[], object]:
        return lambda: litebert(*words, "--output", tmp_path / name).ok

    num_operations = operations(*begin(train("whole"), tmp_path))
    whole = Tokenizer.load(tmp_path / "whole").hash
    assert num_operations and num_operations > 10
    for number in range(1, num_operations, max(1, num_operations // 10)):
        name = str(number)
        assert operations(*begin(train(name), tmp_path, number)) is None
        if (tmp_path / name).exists():
            assert Tokenizer.load(tmp_path / name).hash == whole
        train(name)()
        assert Tokenizer.load(tmp_path / name).hash == whole
        assert not list(tmp_path.glob(f"{name}.partial-*"))


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Background jobs and nohup ignore some of these signals."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", ["import", "filter", "average"])
def test_a_command_that_is_stopped_leaves_nothing(
    desk: Desk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    name: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: signal.raise_signal(number))
        words = COMMANDS[name].replace("BASE", str(desk.base)).split()
        done = desk.run(tmp_path, *words)
    assert (done.code, tree(tmp_path)) == (128 + number, {}), done
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("default_signals")
def test_an_ignored_signal_stays_ignored(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    fsync = os.fsync

    def hang_up(descriptor: int) -> None:
        signal.raise_signal(signal.SIGHUP)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", hang_up)
    words = COMMANDS["average"].replace("BASE", str(desk.base)).split()
    assert desk.run(tmp_path, *words).ok


def test_a_folder_that_cannot_be_written_is_one_clear_error(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    words = COMMANDS["filter"].split()
    assert_error(desk.run(tmp_path, *words), 1, "LB-250")
    assert not list(tmp_path.iterdir())


def test_files_of_a_model_have_the_usual_permissions(
    desk: Desk, tmp_path: Path
) -> None:
    before = os.umask(0o027)
    try:
        words = COMMANDS["average"].replace("BASE", str(desk.base)).split()
        assert desk.run(tmp_path, *words).ok
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert (stat.S_IMODE((tmp_path / "out").stat().st_mode), modes) == (0o750, {0o640})
    clear_stale(tmp_path)


# ---- weights that change under a loaded model ----------------------------------------

LOADED = """
import os, sys
_, folder, how, change = sys.argv
import litebert
from litebert.fast import linear
if how == "plain":
    linear.packing_pays = lambda _: False
from litebert.folder import storage as on_disk
if how == "control":
    on_disk.copy_used = lambda *_: None
model = litebert.load(folder)
before = model.embed(["Anna walked."]), model.fill("Anna [MASK].")[0].probability
path = next(os.path.join(folder, n) for n in os.listdir(folder) if "safetensors" in n)
if change == "over":
    open(path, "wb").close()
else:
    open(path + ".new", "wb").close()
    os.replace(path + ".new", path)
after = model.embed(["Anna walked."]), model.fill("Anna [MASK].")[0].probability
print((before[0] == after[0]).all() and before[1] == after[1])
try:
    model.explain("similar", "Anna walked.", "Bert laughed.")
    print("explained")
except litebert.LitebertError as error:
    print(error.code)
"""


@pytest.mark.parametrize("how", ["packed", "plain", "int8"])
def test_answers_do_not_change_when_weights_are_copied_over_those_in_use(
    desk: Desk, tmp_path: Path, how: str
) -> None:
    model = shutil.copytree(desk.base / "model", tmp_path / "m")
    if how == "int8":
        words = COMMANDS["quantize"].replace("BASE", str(desk.base)).split()
        assert desk.run(tmp_path, *words).ok
        model = tmp_path / "out"
    assert run_in_child(LOADED, model, how, "over") == ["True", "LB-686"]


def test_weights_that_are_replaced_as_a_whole_can_still_be_explained(
    desk: Desk, tmp_path: Path
) -> None:
    model = shutil.copytree(desk.base / "model", tmp_path / "m")
    assert run_in_child(LOADED, model, "packed", "beside") == ["True", "explained"]


def test_control_weights_in_a_mapped_file_end_the_process(
    desk: Desk, tmp_path: Path
) -> None:
    model = shutil.copytree(desk.base / "model", tmp_path / "m")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        run_in_child(LOADED, model, "control", "over")
    assert raised.value.returncode == -signal.SIGBUS
