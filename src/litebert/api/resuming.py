"""Resume a run from its folder alone: its settings are in run.json."""

from __future__ import annotations

from pathlib import Path

from litebert.api.progress import Progress
from litebert.api.run import Run, concluded
from litebert.config import FinetuneConfig, PretrainConfig, Resolved, Schema, Setting, resolve, without_retired
from litebert.distributed.world import World, joined
from litebert.runs import read_run
from litebert.train.finetune import finetune
from litebert.train.pretrain import pretrain
from litebert.train.run import Outcome, choose_device

_DECIDED = ("preset", "recipe", "file", "flag")
"""Origins of settings that a person chose; the others are derived from the data again."""


def resume(folder: str | Path, *, quiet: bool = False) -> Run:
    """Continue a run, or those seeds of it that are not finished, as its command would.

    Raises:
        LitebertError: LB-921, there is no run in this folder; what training raises.
    """
    run = Run.open(folder)
    say = Progress("", "", is_quiet=quiet).say
    was_finished = run.is_finished
    for each in run.seeds or (run,):
        code = _resumed(each.folder, quiet=quiet)
        if code:
            return concluded(Run(run.folder, code), say)
    return concluded(run, say, was_finished=was_finished)


def _resumed(folder: Path, *, quiet: bool) -> int:
    recorded = read_run(folder)
    assert recorded is not None
    device = choose_device(str(recorded.settings.get("train.device", "auto")))
    with joined(device) as world:
        return _trained(folder, world, quiet=quiet).exit_code


def _trained(folder: Path, world: World, *, quiet: bool) -> Outcome:
    if Run(folder).kind == "fine-tuning":
        return finetune(_settings(folder, FinetuneConfig), folder, is_quiet=quiet, world=world)
    return pretrain(_settings(folder, PretrainConfig), folder, is_quiet=quiet, world=world)


def _settings(folder: Path, schema: type[Schema]) -> Resolved[Schema]:
    recorded = read_run(folder)
    assert recorded is not None
    decided = {
        name: Setting(value, recorded.origins[name])
        for name, value in without_retired(recorded.settings).items()
        if recorded.origins[name].kind in _DECIDED
    }
    return resolve(schema, decided)
