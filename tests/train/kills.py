"""Savings that are killed, each in a fork of this process: `python kills.py TASK FOLDER MODEL`."""

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
from litebert.config import OptimConfig
from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.optim import build_optimizer
from litebert.train import checkpoint
from litebert.train.checkpoint import Checkpoints, RunProgress, verify

torch.set_num_threads(1)
NUM_KILLS = 50


class Operations:
    """Counts operations on files; kills the process at one of them."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at, self.done = kill_at, 0
        for name in ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir"):
            setattr(os, name, self.counted(getattr(os, name)))
        files.open = self.counted(open, is_killed_after=True)  # type: ignore[attr-defined]

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


def saves(folder: Path, model: str) -> int:
    """Kill a save at each operation; return how many left something that is not whole, or less."""
    point, invalid, is_killed = 0, 0, True
    before, now = folder / "before", folder / "now"
    Saving(before, model).save(2, 3)
    saving = Saving(now, model)
    while is_killed:
        point += 1
        shutil.copytree(before, now)
        is_killed = saving.killed_at(point)
        left = saving.checkpoints.newest_first()
        invalid += len(left) < 2 or not all(map(is_valid, left))
        shutil.rmtree(now)
    assert point > 15
    return invalid


def readers(folder: Path, model: str) -> int:
    """Verify what is there while writers save and are killed; return how often that failed."""
    saving, step, invalid, seen = Saving(folder, model), 0, 0, 0
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
    task = {"saves": saves, "readers": readers}[sys.argv[1]]
    print(task(Path(sys.argv[2]), sys.argv[3]))
