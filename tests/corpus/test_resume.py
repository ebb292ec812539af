"""Builds that are killed and begun again end with the very same bytes."""

import json
import os
import select
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from litebert.corpus import build_corpus
from litebert.corpus.build import locked, run_local, run_on_ray
from litebert.errors import DamagedError, LitebertError, ResourceError

from .conftest import stories, tree

Settings = dict[str, object]

KILLED_AT = [k / 6 for k in range(7)]
"""Shares of the file operations of a build; 0 is the first, 1 the last."""

BUILD = """
import json, os, signal, sys
import litebert.corpus.build as build

def kill_at(count):
    done = 0
    def counted(name):
        original = getattr(os, name)
        def wrapped(*arguments, **keywords):
            nonlocal done
            done += 1
            if done == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **keywords)
        setattr(os, name, wrapped)
    for name in ("fsync", "rename", "replace", "unlink", "rmdir"):
        counted(name)
    return lambda: done

if __name__ == "__main__":
    build.PART_BYTES = 1
    done = kill_at(int(sys.argv[2]))
    build.build_corpus(**json.loads(sys.argv[1]))
    print(done())
"""

DIE_WITH_LOCK = """
import os, signal, sys
from pathlib import Path
from litebert.corpus.build import locked
with locked(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def command(settings: Settings, output: Path, kill_at: int = 0) -> list[str]:
    """Build in a process of its own, which kills itself before file operation `kill_at`."""
    return [sys.executable, "-c", BUILD, json.dumps({**settings, "output": str(output)}), str(kill_at)]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, vocabulary: Path) -> Settings:
    """Give a build of three parts with several shards on both sides."""
    folder = tmp_path_factory.mktemp("inputs")
    for part in range(3):
        (folder / f"{part}.txt").write_text("\n\n".join(" ".join(story) for story in stories(40, 40 * part)))
    inputs = [str(path) for path in sorted(folder.iterdir())]
    text = {"inputs": inputs, "tokenizer": str(vocabulary), "documents": "blank-line"}
    return {**text, "held_out": 0.3, "shard_tokens": 2_000, "workers": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> tuple[Path, int]:
    """Give an uninterrupted build and the number of its file operations."""
    output = tmp_path_factory.mktemp("whole") / "corpus"
    operations = int(subprocess.check_output(command(settings, output)))
    assert operations > 100
    assert (len(list(output.glob("shard-*"))) > 6) and (len(list(output.glob("held-out/shard-*"))) > 3)
    assert not [*output.rglob("*.partial-*"), *output.glob("build.json")]
    with_workers = output.with_name("with-workers")
    assert subprocess.call(command({**settings, "workers": 2}, with_workers)) == 0
    assert tree(with_workers) == tree(output)
    return output, operations


@pytest.mark.parametrize("point", KILLED_AT)
def test_build_killed_at_any_file_operation_resumes_to_the_same_bytes(
    settings: Settings, whole: tuple[Path, int], tmp_path: Path, point: float
) -> None:
    reference, operations = whole
    output, at = tmp_path / "corpus", 1 + round(point * (operations - 1))
    assert subprocess.call(command(settings, output, at)) == -signal.SIGKILL
    if point == 0.5:
        with pytest.raises(LitebertError, match="begun with other settings"):
            build_corpus(**{**settings, "output": output, "held_out": 0.2})
    before = {path: path.stat().st_ino for path in output.rglob("shard-*-????")}
    assert subprocess.call(command(settings, output)) == 0
    assert {path: path.stat().st_ino for path in before} == before, "shards that are whole are not made again"
    assert tree(output) == tree(reference)


def test_killing_a_build_ends_its_workers_and_resuming_gives_the_same_bytes(
    settings: Settings, whole: tuple[Path, int], tmp_path: Path
) -> None:
    output = tmp_path / "corpus"
    with subprocess.Popen(command({**settings, "workers": 2}, output), stdout=subprocess.DEVNULL) as parent:
        while not list(output.glob("shard-*")):  # until its workers have begun to write
            assert parent.poll() is None
        workers = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        children = [os.pidfd_open(int(worker)) for worker in workers]
        parent.kill()
    for child in children:
        assert select.select([child], [], [], 8)[0], "workers outlive the build"
        os.close(child)
    assert subprocess.call(command(settings, output)) == 0
    assert tree(output) == tree(whole[0])


def test_lock_of_a_killed_build_holds_nobody_up(settings: Settings, tmp_path: Path) -> None:
    die = [sys.executable, "-c", DIE_WITH_LOCK, str(tmp_path / "corpus")]
    assert subprocess.run(die, check=False).returncode == -signal.SIGKILL
    with locked(tmp_path / "corpus"), pytest.raises(LitebertError, match="is being written by another process"):
        build_corpus(**{**settings, "output": tmp_path / "corpus"})
    assert not list((tmp_path / "corpus").iterdir())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_or_wait(number: int) -> None:
    if number == 0:
        raise DamagedError("LB-000", f"no {number}", received="it", expected="them", next="this")
    signal.pause()


def test_an_error_of_a_worker_stops_the_others_and_a_death_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # where spawned processes find the functions above
    with pytest.raises(DamagedError) as caught:
        run_local([partial(fail_or_wait, number) for number in range(4)], workers=2)
    error = caught.value
    assert (error.code, error.received, error.expected, error.next) == ("LB-000", "it", "them", "this")
    with pytest.raises(ResourceError, match=r"a worker process died(?s:.*)fewer --workers"):
        run_local([die] * 2, workers=2)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LitebertError, match=r"pip install 'litebert\[cluster\]'"):
        run_on_ray([die])
