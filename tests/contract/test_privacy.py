"""Nothing leaves the machine unasked: no command connects to anything, and none writes
outside its runs, its outputs and litebert's cache.

All commands run in one process, which Python's audit hook watches, in a network namespace
without routes, and under strace, which also sees native code and child processes, where
the system has them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from litebert.privacy import NO_TELEMETRY

from . import watched
from .commands import COMMANDS, furnish, typed_words
from .shell import leaves
from .tiny import Desk

WITHOUT_JSON = [
    ("completion", "bash"),
    ("help", "finetune"),
    ("recipes show", "laptop"),
    ("runs average", "RUNS/base --output averaged"),
    ("corpus filter", "STORIES --documents blank-line --output kept.jsonl"),
    ("corpus push", "CORPUS file://WORK/work/pushed"),
    ("export onnx", "RUNS/base onnx/model.onnx"),
    ("report", "RUNS/reviews"),
    ("embed", "few.txt --model RUNS/base --output vectors.npy"),
    ("serve", "base=RUNS/base"),
]
ASKED = {"hub pull", "hub push", "export web"}
"""The network is what these are for."""

CACHES = ("XDG_CACHE_HOME", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR", "HF_HOME")
SYSTEM = ("/dev/", "/proc/")


@dataclass
class Watched:
    """What commands reached and wrote: as Python reports it, and as the system does."""

    home: Path
    allowed: tuple[Path, ...]
    codes: dict[str, list[int]] = field(default_factory=dict)
    python: list[tuple[str, str, str]] = field(default_factory=list)
    system: list[tuple[str, str]] | None = None

    def is_unasked(self, kind: str, what: str) -> bool:
        """Return whether an event is one that nobody asked for."""
        if kind == "reached":
            return not re.search(r"127\.0\.0\.1|localhost|::1|^file:|^/|^$", what)
        path = self.allowed[0] / what
        if what.startswith(SYSTEM) or path == self.home / ".cache":
            return False
        return not any(path.is_relative_to(folder) for folder in self.allowed)

    def from_python(self) -> list[tuple[str, str, str]]:
        """Return the events of the audit hook that nobody asked for."""
        return [event for event in self.python if self.is_unasked(*event[1:])]

    def from_system(self) -> list[tuple[str, str]]:
        """Return the calls to the system that nobody asked for; skip without strace."""
        if self.system is None:
            pytest.skip("strace is not available here")
        return [event for event in self.system if self.is_unasked(*event)]


def runs_here(*words: str) -> bool:
    """Return whether a program exists and may do what the words say."""
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run(words, capture_output=True, timeout=60).returncode == 0


def wrapped(log: Path, words: list[str]) -> list[str]:
    """Return a command line that runs the words without routes and under strace, where
    the system can.
    """
    if runs_here("unshare", "-rn", "true"):
        words = ["unshare", "-rn", *words]
    traced = ["strace", "-f", "-qq", "-y", "-s", "300", "-e", "signal=none"]
    traced += ["-e", "trace=connect,sendto,sendmsg,sendmmsg,openat,open,creat,mkdir"]
    traced[-1] += ",mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat"
    if runs_here("strace", "-f", "--seccomp-bpf", "true"):
        traced.append("--seccomp-bpf")
    if runs_here(*traced, "true"):
        words = [*traced, "-o", str(log), *words]
    return words


def whole_calls(log: Path) -> Iterator[str]:
    """Yield each call to the system that strace saw, also one that another process's
    call interrupts in the log.
    """
    begun: dict[str, str] = {}
    for line in log.read_text("utf-8", "replace").splitlines():
        process, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[process] = call.removesuffix("<unfinished ...>")
        elif call.startswith("<... "):
            yield begun.pop(process, "") + call.partition(" resumed>")[2]
        else:
            yield call


def read_trace(log: Path) -> list[tuple[str, str]]:
    """Read what strace saw: addresses that were reached, and paths that were written."""
    events = []
    for call in whole_calls(log):
        if call.startswith(("connect(", "send")):
            if address := re.search(r'AF_INET6?, .*?"([^"]+)"', call):
                events.append(("reached", address[1]))
            continue
        is_reading = re.match(r"open.*O_RDONLY(?!.*O_CREAT)", call)
        paths = re.findall(r'"([^"]*)"', call)
        if not paths or is_reading or not re.search(r"\) += +\d", call):
            continue
        # a path is relative to the folder of the call
        folders = re.findall(r"(?:\d|AT_FDCWD)<([^>]*)>, \"", call)
        folder = folders[-1] if folders else ""
        events.append(("written", str(Path(folder) / paths[-1])))
    return events


def environment(home: Path, **changes: str) -> dict[str, str]:
    """Return the environment of a new user, who has set none of our variables."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in (*NO_TELEMETRY, *CACHES)
    }
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "OMP_NUM_THREADS": "1"}
    return {**variables, **own, "PYTHONDONTWRITEBYTECODE": "1", **changes}


def watch(
    desk: Desk,
    place: Path,
    commands: list[tuple[str, list[str]]],
    **changes: str,
) -> Watched:
    """Run commands in a folder, watched, as a user with an empty home."""
    home = place / "home"
    work = place / "work"
    work.mkdir(exist_ok=True)
    (place / "commands.json").write_text(json.dumps(commands))
    (place / "python.log").touch()
    words = [sys.executable, watched.__file__]
    words += [str(place / "python.log"), str(place / "commands.json")]
    done = subprocess.run(
        wrapped(place / "system.log", words),
        cwd=work,
        env=environment(home, **changes),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ours = home / ".cache" / "litebert"
    allowed = (work, desk.folder, ours, home / "tmp", place / "python.log")
    seen = Watched(home, allowed)
    for line in (place / "python.log").read_text("utf-8").splitlines():
        event = json.loads(line)
        if event["kind"] == "code":
            seen.codes.setdefault(event["command"], []).append(int(event["what"]))
        else:
            seen.python.append((event["command"], event["kind"], event["what"]))
    if (place / "system.log").exists():
        seen.system = read_trace(place / "system.log")
    return seen


@pytest.fixture(scope="module")
def seen(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Run every command once."""
    place = tmp_path_factory.mktemp("watched")
    (place / "work").mkdir()
    furnish(place / "work", desk)
    commands = [
        (name, [*name.split(), *typed_words(desk, words.replace("WORK", str(place)))])
        for name, words in [*COMMANDS, *WITHOUT_JSON]
        if name not in ASKED
    ]
    return watch(desk, place, commands)


def test_every_command_runs_without_a_network(seen: Watched) -> None:
    assert set(seen.codes) | ASKED == set(leaves())
    failed = {name: codes for name, codes in seen.codes.items() if any(codes)}
    assert not failed


def test_python_reaches_nothing_and_writes_only_runs_outputs_and_cache(
    seen: Watched,
) -> None:
    assert not seen.from_python()


def test_native_code_reaches_nothing_and_writes_only_runs_outputs_and_cache(
    seen: Watched,
) -> None:
    assert not seen.from_system()


def test_the_home_has_only_our_cache_and_no_temporary_file_stays(seen: Watched) -> None:
    assert {path.name for path in seen.home.iterdir()} <= {".cache", "tmp"}
    assert {path.name for path in (seen.home / ".cache").iterdir()} == {"litebert"}
    assert not [*(seen.home / "tmp").iterdir()]


def test_control_what_python_and_native_code_do_is_noticed(
    desk: Desk, tmp_path: Path
) -> None:
    seen = watch(desk, tmp_path, [("misbehave", ["native"])])
    reached = ("misbehave", "reached", "events.example.invalid")
    written = ("misbehave", "written", str(seen.home / "python"))
    assert seen.from_python() == [reached, written]
    native = {("reached", "192.0.2.1"), ("written", str(seen.home / "native"))}
    assert native <= set(seen.from_system())


def test_telemetry_is_off_unless_the_user_has_turned_it_on() -> None:
    code = "import os, litebert; print([os.environ[name] for name in {0!r}])"
    words = [sys.executable, "-c", code.format([*NO_TELEMETRY])]
    unset = {name: os.environ[name] for name in os.environ if name not in NO_TELEMETRY}
    chosen = dict.fromkeys(NO_TELEMETRY, "chosen")
    for variables, expected in (({}, NO_TELEMETRY), (chosen, chosen)):
        done = subprocess.run(
            words,
            env={**unset, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str([*expected.values()])
