"""Trainings and savings that are killed, each in a fork of this process, which imports torch once.

Run as `python kills.py TASK FOLDER WORDS [WITHOUT]`; WITHOUT is code that takes a protection away.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from litebert import files
from litebert.config import OptimConfig, PretrainConfig, resolve, settings_from_words
from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.optim import build_optimizer
from litebert.train import checkpoint
from litebert.train.checkpoint import Checkpoints, RunProgress, verify
from litebert.train.pretrain import pretrain

torch.set_num_threads(1)
NUM_KILLS = 50


class Operations:
    """Counts operations on files; kills the process at one of them."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at, self.done = kill_at, 0
        self.saves: list[tuple[int, int]] = []
        for name in ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir"):
            setattr(os, name, self.counted(getattr(os, name)))
        files.open = self.counted(open, is_killed_after=True)  # type: ignore[attr-defined]
        save = Checkpoints.save

        def noted(checkpoints: Checkpoints, *arguments: object) -> Path:
            begun = self.done + 1
            path = save(checkpoints, *arguments)  # type: ignore[arg-type]
            self.saves.append((begun, self.done))
            return path

        Checkpoints.save = noted  # type: ignore[method-assign, assignment]

    def counted(self, original: Callable[..., object], *, is_killed_after: bool = False) -> Callable[..., object]:
        """Wrap one operation; a file that was opened is left as it is after opening: empty."""

        def wrapped(*arguments: object, **keywords: object) -> object:
            self.done += 1
            if self.done == self.kill_at and not is_killed_after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **keywords)
            if self.done == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped


def forked(work: Callable[[], None]) -> int:
    """Begin work in another process; return its number."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    """Wait for a process; return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def train(run: Path, words: list[str], *, kill_at: int = 0) -> int:
    """Train in a fork, killed at an operation if one is given."""

    def work() -> None:
        operations = Operations(kill_at)
        pretrain(resolve(PretrainConfig, settings_from_words(words)), run, is_quiet=True)
        (run.parent / f"{run.name}.json").write_text(json.dumps(operations.saves))

    return ended(forked(work))


def sweep(folder: Path, words: list[str]) -> int:
    """Kill the second save at some or all of its operations, then resume; return how many."""
    whole, begun, counted = folder / "whole", folder / "begun", folder / "counted"
    assert train(whole, words[1:]) == 0
    saves = json.loads((folder / "whole.json").read_text())
    assert train(begun, words[1:], kill_at=saves[1][0]) == -signal.SIGKILL
    shutil.copytree(begun, counted)
    assert train(counted, words[1:]) == 0
    first, last = json.loads((folder / "counted.json").read_text())[0]
    assert last - first >= 15
    points = range(first, last + 1, max(1, (last - first) // int(words[0])))
    for point in points:
        run = folder / f"run-{point}"
        shutil.copytree(begun, run)
        assert train(run, words[1:], kill_at=point) == -signal.SIGKILL
        assert train(run, words[1:]) == 0
    return len(points)


class Saving:
    """Saves checkpoints of a small network, one after the other."""

    def __init__(self, folder: Path, model: str) -> None:
        self.network = load_model(Path(model)).network
        self.optimizer = build_optimizer(OptimConfig(), self.network.named_parameters())
        self.checkpoints = Checkpoints(folder, keep=2)

    def save(self, *steps: int) -> None:
        """Write these checkpoints."""
        for step in steps:
            self.checkpoints.save(self.network, self.optimizer, RunProgress(step=step))

    def killed_at(self, point: int) -> bool:
        """Save one more in a fork that is killed at an operation; tell whether there is one."""

        def work() -> None:
            Operations(point)
            self.save(4)

        return ended(forked(work)) == -signal.SIGKILL


def saves(folder: Path, words: list[str]) -> int:
    """Kill a save at each operation; return how many left something that is not whole, or less."""
    point, invalid, is_killed = 0, 0, True
    before, now = folder / "before", folder / "now"
    Saving(before, words[0]).save(2, 3)
    saving = Saving(now, words[0])
    while is_killed:
        point += 1
        shutil.copytree(before, now)
        is_killed = saving.killed_at(point)
        left = saving.checkpoints.newest_first()
        invalid += len(left) < 2 or not all(map(is_valid, left))
        shutil.rmtree(now)
    assert point > 15
    return invalid


def readers(folder: Path, words: list[str]) -> int:
    """Verify what is there while writers save and are killed; return how often that failed."""
    saving, step, invalid, seen = Saving(folder, words[0]), 0, 0, 0
    checkpoints, draw = saving.checkpoints, random.Random(int(time.time()))
    for _ in range(NUM_KILLS):
        step = max([checkpoint.step_of(path) for path in checkpoints.newest_first()] or [0]) + 1
        child = forked(partial(saving.save, *range(step, step + 10_000)))
        until = time.monotonic() + draw.uniform(0.02, 0.2)
        while time.monotonic() < until:
            for path in checkpoints.newest_first():
                invalid += not is_valid(path)
                seen += 1
        os.kill(child, signal.SIGKILL)
        assert ended(child) == -signal.SIGKILL
        invalid += sum(not is_valid(path) for path in checkpoints.newest_first())
    assert seen > NUM_KILLS
    return invalid


def is_valid(path: Path) -> bool:
    """Whether a checkpoint is whole, or was removed as outdated while it was read."""
    try:
        verify(path)
    except (LitebertError, FileNotFoundError):
        return not path.exists()
    return True


if __name__ == "__main__":
    exec("".join(sys.argv[4:]))
    task = {"sweep": sweep, "saves": saves, "readers": readers}[sys.argv[1]]
    print(task(Path(sys.argv[2]), json.loads(sys.argv[3])))
