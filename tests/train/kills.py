"""Savings of checkpoints that are killed, each in a fork of this process, which imports torch once.

Run as `python kills.py TASK FOLDER MODEL [WITHOUT]`; WITHOUT is code that takes a protection away.
"""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from litebert.config import OptimConfig
from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.optim import build_optimizer
from litebert.train import checkpoint
from litebert.train.checkpoint import Checkpoints, RunProgress, verify

torch.set_num_threads(1)
NUM_KILLS = 50
OPERATIONS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove"}


def save(checkpoints: Checkpoints, steps: range, point: int = 0) -> int:
    """Save a small network after each step in a fork, killed before an operation on files; return its process."""
    child, done = os.fork(), 0
    if child == 0:

        def watch(event: str, _: object) -> None:
            nonlocal done
            done += event in OPERATIONS
            if event in OPERATIONS and done == point:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            for step in steps:
                checkpoints.save(NETWORK, OPTIMIZER, RunProgress(step=step))
            os._exit(0)
        finally:
            os._exit(1)
    return child


def was_killed(child: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def num_invalid(checkpoints: Checkpoints) -> int:
    """Count the checkpoints that are not whole; one may be removed as outdated while it is read."""
    invalid = 0
    for path in checkpoints.newest_first():
        try:
            verify(path)
        except (LitebertError, FileNotFoundError):
            invalid += path.exists()
    return invalid


def saves(folder: Path) -> int:
    """Kill a save at each operation; return how many left something that is not whole, or less."""
    before, checkpoints, point, invalid, is_killed = folder / "before", Checkpoints(folder / "now", 2), 0, 0, True
    was_killed(save(Checkpoints(before, 2), range(2, 4)))
    while is_killed:
        point += 1
        shutil.copytree(before, folder / "now")
        is_killed = was_killed(save(checkpoints, range(4, 5), point))
        invalid += len(checkpoints.newest_first()) < 2 or num_invalid(checkpoints) > 0
        shutil.rmtree(folder / "now")
    assert point > 15
    return invalid


def readers(folder: Path) -> int:
    """Verify what is there while writers save and are killed; return how often that failed."""
    checkpoints, invalid, seen, draw = Checkpoints(folder, 2), 0, 0, random.Random(int(time.time()))
    for _ in range(NUM_KILLS):
        step = max([checkpoint.step_of(path) for path in checkpoints.newest_first()] or [0]) + 1
        child = save(checkpoints, range(step, step + 10_000))
        until = time.monotonic() + draw.uniform(0.02, 0.2)
        while time.monotonic() < until:
            invalid += num_invalid(checkpoints)
            seen += 1
        os.kill(child, signal.SIGKILL)
        assert was_killed(child)
        invalid += num_invalid(checkpoints)
    assert seen > NUM_KILLS
    return invalid


if __name__ == "__main__":
    exec("".join(sys.argv[4:]))
    NETWORK = load_model(Path(sys.argv[3])).network
    OPTIMIZER = build_optimizer(OptimConfig(), NETWORK.named_parameters())
    print({"saves": saves, "readers": readers}[sys.argv[1]](Path(sys.argv[2])))
