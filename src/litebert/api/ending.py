"""How a training call ends: with a report, and a line about the outcome."""

from __future__ import annotations

from collections.abc import Callable

from litebert.api.run import Run
from litebert.errors import LitebertError


def concluded(run: Run, say: Callable[[str], None], *, was_finished: bool = False) -> Run:
    """Write the report of a finished run; say if there was nothing to do, or that it stopped."""
    if run.exit_code:
        say("stopped with a checkpoint; rerun the command to resume")
        return run
    if was_finished:
        say(f"{run.folder} was finished already: nothing was trained")
    try:
        run.write_report()
    except LitebertError as error:  # the model is there; only its page is not
        say(str(error))
    return run
