"""Train in forks of this process, each killed at one of its operations on files; print how many there were.

Run as `python kills.py`, with a JSON record in the standard input: `verb` of litebert, its `arguments`, the folder
`runs`, and `parts`: the places of the kills, as shares of the operations that a whole run takes.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
from pathlib import Path

import torch

import litebert

OPERATIONS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.truncate"}


def train(asked: dict, name: str, *, kill_at: int = 0) -> int:
    """Train in a fork, killed before an operation in the folder of its runs; return how many there were."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        done = 0

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal done
            if event in OPERATIONS and str(arguments[0]).startswith(asked["runs"]):
                done += 1
                if done == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            getattr(litebert, asked["verb"])(**asked["arguments"], runs=asked["runs"], name=name, quiet=True)
            with open(writer, "w") as told:
                told.write(" ".join([str(done), *sys.modules]))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as ended:
        said, *modules = ended.read().split() or [""]
    _, status = os.waitpid(child, 0)
    assert bool(said) != bool(kill_at), (name, said)
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if kill_at else 0)
    for module in modules:  # once, instead of in each fork that comes
        with contextlib.suppress(ImportError, AttributeError):
            importlib.import_module(module)
    return int(said or kill_at)


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = json.load(sys.stdin)
    whole = train(given, "whole")
    for part in given["parts"]:
        train(given, f"killed-{part}", kill_at=max(1, round(part * whole)))
    Path(given["runs"]).joinpath("whole", "model", "model.safetensors").stat()
    sys.stdout.write(json.dumps(whole))
