"""What a run costs while it lasts, what it needs around it, and that its numbers stay the same."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from litebert.files import Json
from litebert.train import run
from litebert.train.pretrain import pretrain

from .conftest import At, Configure, checkpoints_of


class Usage:
    """Notes memory and open files at five steps of a run; what it is asked to keep, it keeps."""

    def __init__(self, first: int, last: int, kept_bytes: int = 0) -> None:
        self.steps = [first + (last - first) * part // 4 for part in range(5)]
        self.memory, self.files = list[int](), list[int]()
        self.kept_bytes, self.kept = kept_bytes, list[bytearray]()

    def __call__(self, row: dict[str, Json]) -> None:
        self.kept.append(bytearray(b"x" * self.kept_bytes))
        if row["kind"] == "train" and int(str(row["step"])) in self.steps:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4_096
            self.memory.append(resident)
            self.files.append(len([*Path("/proc/self/fd").iterdir()]))


def _require_no_leak(run: Path, configure: Configure, first: int, last: int, kept_bytes: int = 0) -> None:
    """Require a quarter of the run that adds less than 500 KB: a leak adds in every one.

    An allocator takes new memory now and then, so the whole says nothing.
    """
    usage = Usage(first, last, kept_bytes)
    small = ("train.batch_size=2", "objective.max_seq_length=16", "train.log_every=25")
    pace = (f"train.steps={last}", "train.eval_every=100000", "train.save_every=500")
    pretrain(configure(*small, *pace), run, is_quiet=True, listeners=(usage,))
    assert len(usage.memory) == 5
    assert min(after - before for before, after in pairwise(usage.memory)) < 500_000
    assert usage.files[-1] == usage.files[0]


def test_five_hundred_steps_leak_nothing(tmp_path: Path, configure: Configure) -> None:
    _require_no_leak(tmp_path, configure, 200, 700)


@pytest.mark.slow
def test_twenty_thousand_steps_leak_nothing(tmp_path: Path, configure: Configure) -> None:
    _require_no_leak(tmp_path, configure, 10_000, 20_000)


def test_control_what_is_kept_at_each_row_is_noticed(tmp_path: Path, configure: Configure) -> None:
    with pytest.raises(AssertionError):
        _require_no_leak(tmp_path, configure, 100, 200, kept_bytes=20_000_000)


STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP]


@pytest.fixture
def heard() -> Iterator[None]:
    """Hear SIGINT and SIGHUP: background jobs and nohup ignore them, these tests perhaps among them."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", STOPS)
def test_every_signal_to_stop_leaves_a_checkpoint(tmp_path: Path, configure: Configure, number: signal.Signals) -> None:
    code = pretrain(configure(), tmp_path, is_quiet=True, listeners=(At(6, number),))
    assert (code, (tmp_path / "model").exists()) == (128 + number, False)
    assert checkpoints_of(tmp_path)[-1].name == "step-000000006"


def test_nohup_is_obeyed(tmp_path: Path, configure: Configure) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert pretrain(configure(), tmp_path, is_quiet=True, listeners=(At(6, signal.SIGHUP),)) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heard")
def test_control_without_handlers_a_signal_leaves_no_checkpoint(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(run, "STOP_SIGNALS", ())
    with pytest.raises(KeyboardInterrupt):
        pretrain(configure(), tmp_path, is_quiet=True, listeners=(At(3, signal.SIGINT),))
    assert not checkpoints_of(tmp_path)


SLEEPING = """
import time
from pathlib import Path
from litebert.train.run import session
with session(Path('.')):
    print("ready", flush=True)
    while True:
        time.sleep(60)
"""


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPING], stdout=subprocess.PIPE, cwd=tmp_path) as child:
        assert child.stdout.readline() == b"ready\n"
        child.terminate()
        with pytest.raises(subprocess.TimeoutExpired):  # the first is only a request
            child.wait(0.5)
        sent = time.monotonic()
        child.terminate()
        assert child.wait(10) == -signal.SIGTERM
        assert time.monotonic() - sent < 2


ODD = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
PRETRAIN = ["optim.warmup_steps=1", "train.steps=2", "train.batch_size=2", "--preset", "tiny"]


def _run(place: Path, *words: str, preparing: Callable[[], None] | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = {
        "PATH": os.defpath,
        "OMP_NUM_THREADS": "1",
        **ODD,
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }
    command = [sys.executable, "-m", "litebert", *words]
    return subprocess.run(command, cwd=place, env=environment, preexec_fn=preparing, capture_output=True, check=False)


def test_without_home_and_utf8_and_under_long_odd_names_a_run_works(tmp_path: Path, corpus: Path) -> None:
    """No HOME, another time zone, an ASCII locale; a folder with spaces, a name of 200 bytes."""
    place = tmp_path / "größe und 日本"
    place.mkdir()
    name = "n" * 200
    done = _run(place, "pretrain", "--corpus", str(corpus), "--name", name, *PRETRAIN)
    assert done.returncode == 0, done.stderr.decode()
    assert (place / "runs" / name / "model" / "model.safetensors").is_file()


def test_memory_that_does_not_suffice_is_one_clear_error(tmp_path: Path, corpus: Path) -> None:
    large = ["train.batch_size=4096", "train.micro_batch_size=4096", "objective.max_seq_length=512"]
    words = ["pretrain", "--corpus", str(corpus), "--name", "large", *PRETRAIN, *large]
    done = _run(tmp_path, *words, preparing=lambda: resource.setrlimit(resource.RLIMIT_AS, (2_500 << 20, 2_500 << 20)))
    said = done.stderr.decode()
    assert done.returncode == 4, said
    assert "Traceback" not in said
    assert "train.micro_batch_size" in said
