"""Kill work on files at any moment, each time in a fork of a process that has imported
torch once (see `killed`).
"""

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import litebert
from litebert.config import OptimConfig
from litebert.corpus import build as building
from litebert.errors import LitebertError
from litebert.folder import read_folder
from litebert.optim import build_optimizer
from litebert.train import checkpoint
from litebert.train.checkpoint import Checkpoints, RunProgress, step_of, verify

OPERATIONS = {
    "open",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.link",
    "os.truncate",
}
NUM_KILLS = 50


def killed(task: str, without: str = "", **arguments: object) -> int:
    """Run one of the tasks below in a separate process; `without` is code that removes
    a protection.
    """
    command = [
        sys.executable,
        "-P",
        __file__,
        task,
        without,
        json.dumps(arguments, default=str),
    ]
    return int(
        subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, timeout=300
        ).stdout
    )


def begin(
    work: Callable[[], object], folder: Path, kill_at: int = 0
) -> tuple[int, int]:
    """Do the work in a fork that is killed before operation `kill_at` on files of a
    folder; return its pid and a pipe.

    A fork that is not killed writes to the pipe how many operations it did and which
    modules it imported.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        done = 0

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal done
            if event in OPERATIONS and str(arguments[0]).startswith(str(folder)):
                done += 1
                if done == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            work()
            with open(writer, "w") as pipe:
                pipe.write(" ".join([str(done), *sys.modules]))
        finally:
            os._exit(0)
    os.close(writer)
    return child, reader


def operations(child: int, reader: int) -> int | None:
    """Wait for a fork; return how many operations it did, or None if it was killed."""
    with open(reader) as pipe:
        number, *modules = pipe.read().split() or [""]
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (0 if number else -signal.SIGKILL)
    for module in modules:  # here, once, instead of in each later fork
        with contextlib.suppress(ImportError, AttributeError):
            importlib.import_module(module)
    return int(number) if number else None


# ---- a training, or the build of a corpus --------------------------------------------


def each_killed(work: Callable[[str], object], folder: Path, parts: list[float]) -> int:
    """Do the work `whole`, then for each of `parts` the work `killed-PART`, killed
    after that share of its operations.

    Return how many operations on files of the folder the whole work has.
    """
    whole = operations(*begin(partial(work, "whole"), folder)) or 0
    for part in parts:
        kill_at = max(1, round(part * whole))
        assert (
            operations(*begin(partial(work, f"killed-{part}"), folder, kill_at)) is None
        )
    return whole


def train(verb: str, arguments: dict, runs: str, parts: list[float]) -> int:
    def work(name: str) -> object:
        return getattr(litebert, verb)(**arguments, runs=runs, name=name, quiet=True)

    whole = each_killed(work, Path(runs), parts)
    Path(runs, "whole", "model", "model.safetensors").stat()
    return whole


def build(settings: dict, folder: str, parts: list[float]) -> int:
    building.PART_BYTES = 1  # a part for each input
    building.SPLIT_BYTES = 20_000  # and two for a large one
    return each_killed(
        lambda name: building.build_corpus(**settings, output=Path(folder, name)),
        Path(folder),
        parts,
    )


# ---- checkpoints ---------------------------------------------------------------------


def saving(checkpoints: Checkpoints, steps: range, model: str) -> Callable[[], None]:
    """Return a function that saves a network after each of the steps."""
    network = read_folder(Path(model)).network
    optimizer = build_optimizer(OptimConfig(), network.named_parameters())

    def save() -> None:
        for step in steps:
            checkpoints.save(network, optimizer, RunProgress(step=step))

    return save


def num_invalid(checkpoints: Checkpoints) -> int:
    """Count the incomplete checkpoints; one that is removed as outdated while it is
    read does not count.
    """
    invalid = 0
    for path in checkpoints.newest_first():
        try:
            verify(path)
        except (LitebertError, FileNotFoundError):
            invalid += path.exists()
    return invalid


def saves(folder: str, model: str) -> int:
    """Kill a save at each file operation; return how many kills left too few
    checkpoints or an incomplete one.
    """
    before = Path(folder, "before")
    now = Path(folder, "now")
    point = 0
    invalid = 0
    done = None
    checkpoints = Checkpoints(now, 2)
    operations(*begin(saving(Checkpoints(before, 2), range(2, 4), model), before))
    while done is None:
        point += 1
        shutil.copytree(before, now)
        done = operations(*begin(saving(checkpoints, range(4, 5), model), now, point))
        invalid += len(checkpoints.newest_first()) < 2 or num_invalid(checkpoints) > 0
        shutil.rmtree(now)
    assert point > 15
    return invalid


def readers(folder: str, model: str) -> int:
    """Verify the checkpoints while writers save and are killed; return how often one
    was invalid.
    """
    checkpoints = Checkpoints(Path(folder), 2)
    invalid = 0
    seen = 0
    seed = int(time.time())
    print(f"the kills were drawn from seed {seed}", file=sys.stderr)
    draw = random.Random(seed)
    for _ in range(NUM_KILLS):
        step = max([step_of(path) for path in checkpoints.newest_first()] or [0]) + 1
        child, reader = begin(
            saving(checkpoints, range(step, step + 10_000), model), Path(folder)
        )
        until = time.monotonic() + draw.uniform(0.02, 0.2)
        while time.monotonic() < until:
            invalid += num_invalid(checkpoints)
            seen += 1
        os.kill(child, signal.SIGKILL)
        assert operations(child, reader) is None
        invalid += num_invalid(checkpoints)
    assert seen > NUM_KILLS
    return invalid


if __name__ == "__main__":
    torch.set_num_threads(1)
    _, task, without, arguments = sys.argv
    exec(without, {"checkpoint": checkpoint})
    print(
        {"train": train, "build": build, "saves": saves, "readers": readers}[task](
            **json.loads(arguments)
        )
    )
