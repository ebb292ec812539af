"""Leaks of a long run, signals that end a run, and the environment that a run needs."""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from litebert import system
from litebert.train import session
from litebert.train.pretrain import pretrain
from tests.contract.shell import litebert
from tests.memory import require_proc, return_free_memory
from tests.waiting import exit_code

from .conftest import Configure, EachStep, at, checkpoints_of, state_of


@pytest.mark.parametrize(
    ("first", "last"),
    [(200, 700), pytest.param(10_000, 20_000, marks=pytest.mark.slow)],
)
def test_a_long_run_leaks_nothing(
    tmp_path: Path,
    configure: Configure,
    each_step: EachStep,
    first: int,
    last: int,
    kept_bytes: int = 0,
) -> None:
    """Require a quarter of the run that adds less than 500 KB: a leak adds in each, an
    allocator only now and then.
    """
    require_proc()
    steps = [first + (last - first) * part // 4 for part in range(5)]
    memory = list[int]()
    files = list[int]()
    kept = list[bytes]()

    def note(step: int) -> None:
        kept.append(b"x" * kept_bytes)
        if step in steps:
            memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4_096)
            files.append(len([*Path("/proc/self/fd").iterdir()]))

    small = ("train.batch_size=2", "objective.max_seq_length=16", "train.log_every=25")
    pace = (f"train.steps={last}", "train.eval_every=100000", "train.save_every=500")
    each_step(note)
    return_free_memory()
    pretrain(configure(*small, *pace), tmp_path, is_quiet=True)
    assert len(memory) == 5
    assert min(after - before for before, after in pairwise(memory)) < 500_000
    assert files[-1] <= files[0]


def test_control_memory_kept_by_each_step_is_noticed(
    tmp_path: Path, configure: Configure, each_step: EachStep
) -> None:
    with pytest.raises(AssertionError):
        test_a_long_run_leaks_nothing(
            tmp_path, configure, each_step, 100, 200, kept_bytes=800_000
        )


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Set the default handlers of SIGINT and SIGHUP: background jobs and nohup ignore
    these signals.
    """
    before = {
        number: signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGHUP)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP]
)
def test_every_signal_to_stop_leaves_a_checkpoint(
    tmp_path: Path, configure: Configure, each_step: EachStep, number: signal.Signals
) -> None:
    def signal_all() -> None:  # as launchers do
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, number)
        signal.raise_signal(number)

    each_step(at(6, signal_all))
    code = pretrain(configure("train.loader_workers=1"), tmp_path, is_quiet=True)
    assert (code, (tmp_path / "model").exists()) == (128 + number, False)
    assert checkpoints_of(tmp_path)[-1].name == "step-000000006"


@pytest.mark.usefixtures("default_signals")
def test_nohup_is_obeyed(
    tmp_path: Path, configure: Configure, each_step: EachStep
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    each_step(at(6, signal.raise_signal, signal.SIGHUP))
    assert pretrain(configure(), tmp_path, is_quiet=True) == 0


@pytest.mark.usefixtures("default_signals")
def test_control_without_handlers_a_signal_leaves_no_checkpoint(
    tmp_path: Path,
    configure: Configure,
    each_step: EachStep,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(session, "STOP_SIGNALS", ())
    each_step(at(3, signal.raise_signal, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        pretrain(configure(), tmp_path, is_quiet=True)
    assert not checkpoints_of(tmp_path)


def test_a_second_signal_ends_at_once(asleep: "subprocess.Popen[bytes]") -> None:
    asleep.terminate()
    with pytest.raises(subprocess.TimeoutExpired):  # the first is only a request
        asleep.wait(2)
    asleep.terminate()  # it would go on for ever
    assert exit_code(asleep) == -signal.SIGTERM


IN_A_NOTEBOOK = """
import signal
from pathlib import Path
from litebert.train.session import session
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with session(Path('.')) as opened:
        signal.raise_signal(signal.SIGINT)
        print("asked to stop:", opened.should_stop())
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("the notebook goes on")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


def test_a_second_ctrl_c_in_a_python_session_does_not_end_the_session(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NOTEBOOK],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "asked to stop: True\nthe notebook goes on\n", done


@pytest.mark.usefixtures("default_signals")
def test_a_handler_set_outside_python_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler_of = signal.getsignal
    hidden = {signal.SIGHUP: None}  # what Python knows of such a handler
    with monkeypatch.context() as patch:
        patch.setattr(
            signal, "getsignal", lambda number: hidden.get(number, handler_of(number))
        )
        with session.session(tmp_path):
            assert handler_of(signal.SIGHUP) is signal.SIG_DFL
            assert handler_of(signal.SIGINT) is not signal.SIG_DFL
            with system.handled({signal.SIGHUP: print, signal.SIGINT: print}):
                assert handler_of(signal.SIGHUP) is signal.SIG_DFL
    assert handler_of(signal.SIGINT) is signal.SIG_DFL


TINY = ("--preset", "tiny", "optim.warmup_steps=1", "train.steps=2")


def _pretrain(
    place: Path, *words: object, **how: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the command without HOME, in another time zone and an ASCII locale."""
    source = Path(__file__).parents[2] / "src"
    changed = {
        "PATH": os.defpath,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(source),
        "TZ": "Pacific/Kiritimati",
        "LC_ALL": "C",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
    }
    # what else is set may choose the kernels, as it does in this process
    environment = {**os.environ, **changed}
    environment.pop("HOME", None)
    command = [sys.executable, "-m", "litebert", "pretrain", *TINY, *map(str, words)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(
        command, cwd=place, env=environment, check=False, **streams | how
    )


def _full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def _terminal_gone() -> int:
    master, slave = os.openpty()
    os.close(master)
    return slave


@pytest.mark.parametrize("open_stderr", [_full_disk, _terminal_gone])
def test_a_run_goes_on_when_its_progress_cannot_be_written(
    tmp_path: Path, corpus: Path, open_stderr: Callable[[], int]
) -> None:
    stderr = open_stderr()
    done = _pretrain(tmp_path, "--corpus", corpus, "train.log_every=1", stderr=stderr)
    os.close(stderr)
    assert done.returncode == 0
    assert (tmp_path / "runs" / "albert" / "model" / "config.json").is_file()


def test_a_run_has_the_same_bits_without_home_and_utf8_and_with_long_odd_names(
    tmp_path: Path, corpus: Path
) -> None:
    place = tmp_path / "größe und 日本"
    name = "n" * 200
    place.mkdir()
    fixed = (
        "--corpus",
        corpus,
        "train.batch_size=2",
        "train.threads=1",
        "train.precision=fp32",
    )
    done = _pretrain(place, *fixed, "--name", name)
    assert done.returncode == 0, done.stderr.decode()
    assert litebert("pretrain", *TINY, *fixed, "--runs", tmp_path, "--name", "usual").ok
    assert state_of(place / "runs" / name) == state_of(tmp_path / "usual")


def test_too_little_memory_is_one_clear_error(tmp_path: Path, corpus: Path) -> None:
    large = [
        "train.batch_size=4096",
        "train.micro_batch_size=4096",
        "objective.max_seq_length=512",
    ]
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2_500 << 20, 2_500 << 20))  # noqa: E731
    done = _pretrain(tmp_path, "--corpus", corpus, *large, preexec_fn=limit)
    said = done.stderr.decode()
    assert done.returncode == 4, said
    assert "Traceback" not in said and "train.micro_batch_size" in said
