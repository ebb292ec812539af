"""Savings of checkpoints that are killed, each in a fork of this process, which imports torch once.

Run as `python kills.py TASK FOLDER MODEL [WITHOUT]`; WITHOUT is code that takes a protection away.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
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


def kill_at(point: int) -> None:
    """Let this process be killed at an operation on files; one that was opened is left as it is then: empty."""
    done = 0

    def counted(original: Callable[..., object], *, is_killed_after: bool = False) -> Callable[..., object]:
        def wrapped(*arguments: object, **keywords: object) -> object:
            nonlocal done
            done += 1
            if done == point and not is_killed_after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **keywords)
            if done == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped

    for name in ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    files.open = counted(open, is_killed_after=True)


class Saving:
    """Saves checkpoints of a small network, one after the other, here or in a fork."""

    def __init__(self, folder: Path, model: str) -> None:
        self.network = load_model(Path(model)).network
        self.optimizer = build_optimizer(OptimConfig(), self.network.named_parameters())
        self.checkpoints = Checkpoints(folder, keep=2)

    def save(self, steps: range) -> None:
        for step in steps:
            self.checkpoints.save(self.network, self.optimizer, RunProgress(step=step))

    def forked(self, steps: range, *, point: int = 0) -> int:
        child = os.fork()
        if child == 0:
            try:
                kill_at(point)
                self.save(steps)
                os._exit(0)
            finally:
                os._exit(1)
        return child


def was_killed(child: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def is_valid(path: Path) -> bool:
    """Whether a checkpoint is whole, or was removed as outdated while it was read."""
    try:
        verify(path)
    except (LitebertError, FileNotFoundError):
        return not path.exists()
    return True


def saves(folder: Path, model: str) -> int:
    """Kill a save at each operation; return how many left something that is not whole, or less."""
    before, now, point, invalid, is_killed = folder / "before", folder / "now", 0, 0, True
    Saving(before, model).save(range(2, 4))
    saving = Saving(now, model)
    while is_killed:
        point += 1
        shutil.copytree(before, now)
        is_killed = was_killed(saving.forked(range(4, 5), point=point))
        left = saving.checkpoints.newest_first()
        invalid += len(left) < 2 or not all(map(is_valid, left))
        shutil.rmtree(now)
    assert point > 15
    return invalid


def readers(folder: Path, model: str) -> int:
    """Verify what is there while writers save and are killed; return how often that failed."""
    saving, invalid, seen = Saving(folder, model), 0, 0
    checkpoints, draw = saving.checkpoints, random.Random(int(time.time()))
    for _ in range(NUM_KILLS):
        step = max([checkpoint.step_of(path) for path in checkpoints.newest_first()] or [0]) + 1
        child = saving.forked(range(step, step + 10_000))
        until = time.monotonic() + draw.uniform(0.02, 0.2)
        while time.monotonic() < until:
            for path in checkpoints.newest_first():
                invalid += not is_valid(path)
                seen += 1
        os.kill(child, signal.SIGKILL)
        assert was_killed(child)
        invalid += sum(not is_valid(path) for path in checkpoints.newest_first())
    assert seen > NUM_KILLS
    return invalid


if __name__ == "__main__":
    exec("".join(sys.argv[4:]))
    print({"saves": saves, "readers": readers}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3]))
