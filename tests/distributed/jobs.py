"""Run jobs, [[VERB, ARGUMENTS]...] in JSON, one after another as one of several processes.

A second argument is a step: this process then sends itself a SIGTERM in it.
"""

import json
import os
import signal
import sys

import litebert
from litebert.train import loop


def stop_after(step: int) -> None:
    """Send this process a real SIGTERM in a step's update."""
    original = loop.training_step

    def signalling(*args: object, **kwargs: object) -> object:
        if kwargs["step"] == step - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args, **kwargs)

    loop.training_step = signalling


if __name__ == "__main__":
    if len(sys.argv) > 2:
        stop_after(int(sys.argv[2]))
    for verb, arguments in json.loads(sys.argv[1]):
        run = getattr(litebert, verb)(**arguments, quiet=True)
        if run.exit_code:
            sys.exit(run.exit_code)
