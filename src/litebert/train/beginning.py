"""Begin a run, or resume it if it was begun with the same settings and data."""

import platform
import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TypeAlias

import torch
from pydantic import JsonValue

import litebert
from litebert import files, runs
from litebert.config import FinetuneConfig, PretrainConfig, TrainConfig
from litebert.device import choose_device
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.plugins import file_of_plugin
from litebert.settings import (
    Change,
    Resolved,
    difference,
    flatten,
    plugins_of,
    settings_at_default,
    words_of,
)

Config: TypeAlias = PretrainConfig | FinetuneConfig
AnyResolved: TypeAlias = Resolved[PretrainConfig] | Resolved[FinetuneConfig]

# Settings that affect neither the data nor the numbers: a run may resume with other
# values. `model.start` is a path; the hash of its weights is in the data of the run, and
# may not change.
FREE_SETTINGS = {
    "model.start",
    "train.keep_checkpoints",
    "train.keep_every",
    "train.loader_workers",
    "train.log_every",
    "train.save_every",
}
# Settings that earlier versions had, with the value at which they changed nothing. A
# setting that is added needs no entry, but a default that changes nothing: a run of an
# earlier version takes it when it is resumed.
REMOVED_SETTINGS: dict[str, JsonValue] = {
    "model.attention_window": 64,
    "train.exits": False,
}
# what differs if only the length of a run does: the last two follow from it
FOLLOW_FROM_LENGTH = {
    "train.steps",
    "train.epochs",
    "train.minutes",
    "train.eval_every",
    "optim.warmup_steps",
}
# what options and arguments of the command for a continuation give
GIVEN_BY_OPTIONS = {"data.train", "task.name", "data.corpus", "distil.teacher"}
# What run.json records of the bytes of a user's file. A run may resume with other bytes,
# such as another order of columns, if the examples are the same: these have a hash, too.
FREE_FACTS = {runs.FILE_HASH}


def begin(
    folder: Path,
    resolved: AnyResolved,
    *,
    data: Mapping[str, JsonValue],
    plugins: Sequence[str] = (),
    group: Path | None = None,
    world: World = ALONE,
) -> bool:
    """Write run.json for a new run, or check that an old one has the same settings and
    data; in the first process.

    A new seed of a `group`, the folder of several seeds, must have those of the others,
    too, except for its seed. `plugins` are those that the run needs besides those that
    its settings name. Return whether the run is finished, that is, has a model:
    this is written last.
    """
    settings = flatten(resolved.config)
    _require_an_example_each(settings, world)

    # in the first process, which writes the files of the run; the others get its answer
    def write_or_check() -> bool:
        if runs.is_run(folder):
            run = runs.RunFolder(folder)
            _require_same(run, resolved, data, FREE_SETTINGS)
            return run.has_model  # without one, the run is resumed
        if group is not None:
            _require_same_as_seeds(group, resolved, data)
        needed = {*plugins, *plugins_of(resolved.config)}
        file = runs.RunFile(
            litebert=litebert.__version__,
            settings=settings,
            plugins={name: file_of_plugin(name) for name in sorted(needed)},
            origins={name: str(origin) for name, origin in resolved.origins.items()},
            data=dict(data),
            environment=_environment(resolved.config.train),
        )
        files.write_json(folder / runs.RUN_FILE, file.model_dump(mode="json"))
        return False

    return bool(world.from_first(write_or_check))


def _require_an_example_each(settings: Mapping[str, JsonValue], world: World) -> None:
    """Raise unless every process has an example in each step, or in each lesson of a
    distillation.
    """
    sizes = ["train.batch_size"]
    # a distillation has a second batch in each step, of plain texts
    if settings.get("distil.teacher"):
        sizes.append("distil.texts")
    for name in sizes:
        size = int(str(settings[name]))
        if size < world.size:
            raise LitebertError(
                "LB-282",
                "each process needs at least one example of every step",
                received=f"{name}={size} for {world.size} processes",
                next=f"set {name}={world.size}, or start fewer processes",
            )


def _environment(train: TrainConfig) -> dict[str, JsonValue]:
    """Return what run.json says of the machine."""
    device = choose_device(train.device)
    gpu = None if device.is_cpu else device.name
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
    }


def _require_same(
    run: runs.RunFolder,
    resolved: AnyResolved,
    data: Mapping[str, JsonValue],
    free: Collection[str],
) -> None:
    """Raise unless a run has these settings, except for those that are `free`, and these
    data.
    """
    # The settings first: other data are usually a consequence of other settings.
    recorded = _as_of_this_version(run.settings, resolved.config)
    changes = list[Change]()
    for change in difference(recorded, flatten(resolved.config)):
        if change.name not in free:
            changes.append(change)
    if changes:
        raise _begun_otherwise(run, resolved, changes)
    former = run.file.data  # hashes and counts
    differing = list[str]()
    for name in sorted({*former, *data} - FREE_FACTS):
        if former.get(name) != data.get(name):
            differing.append(name)
    if differing:
        raise _data_changed(run, resolved, differing)


def _require_same_as_seeds(
    group: Path,
    resolved: AnyResolved,
    data: Mapping[str, JsonValue],
) -> None:
    """Raise unless a new seed has the settings and data of the other seeds."""
    seeds = runs.RunFolder(group).seeds
    if seeds:
        _require_same(seeds[0], resolved, data, FREE_SETTINGS | {"train.seed"})


def _as_of_this_version(
    recorded: Mapping[str, JsonValue], config: Config
) -> dict[str, JsonValue]:
    """Return the settings in a run.json as this version writes them: without removed
    ones that changed nothing, and with the defaults of those that were added since.
    """
    updated = dict(recorded)
    for name, value in REMOVED_SETTINGS.items():
        if name in updated and updated[name] == value:
            del updated[name]
    settings = flatten(config)
    for name in settings_at_default(config):
        updated.setdefault(name, settings[name])
    return updated


def settings_of_other_version(run: runs.RunFolder, config: Config) -> list[str]:
    """Return in words which settings litebert did not have when a run was begun, or no
    longer has.
    """
    names = flatten(config).keys()
    added = sorted(names - run.settings.keys())
    removed = sorted(run.settings.keys() - names)
    words = [f"{name} is new and has its default" for name in added]
    words += [f"{name} is gone and changed nothing" for name in removed]
    return words


# ---- what to do about a run that was begun otherwise ---------------------------------


def _data_changed(
    run: runs.RunFolder, resolved: AnyResolved, differing: Sequence[str]
) -> LitebertError:
    """Return the error for a run whose data are no longer those it was begun with;
    `differing` are the names of what run.json records of them.
    """
    what = "its data or its start model"
    config = resolved.config
    if runs.EXAMPLES_HASH in differing and isinstance(config, FinetuneConfig):
        what = config.data.train or what  # the file of the user
    return LitebertError(
        "LB-505",
        f"{what} has changed since {run.folder} was begun",
        received=f"other values of {', '.join(differing)} than in its run.json",
        expected="the same data: a run that is resumed has seen some of them",
        next=f"the same command with --name {_unused_name(run.folder)}",
    )


def _begun_otherwise(
    run: runs.RunFolder, resolved: AnyResolved, changes: Sequence[Change]
) -> LitebertError:
    """Return the error for a run that was begun with other settings."""
    advice = (
        "repeat the first command to resume it; for another run, choose a --name such"
        f" as {_unused_name(run.folder)}"
    )
    recorded = _as_of_this_version(run.settings, resolved.config)
    if recorded.keys() != flatten(resolved.config).keys():
        advice = (
            "another version of litebert began it: resume it with that one, or choose"
            " another --name"
        )
    elif run.is_finished and _is_only_longer(changes):
        advice = _continuation(run, resolved)
    return LitebertError(
        "LB-505",
        f"{run.folder} was begun with other settings",
        received="; ".join(map(str, changes)),
        expected="the settings in its run.json",
        next=advice,
    )


def _is_only_longer(changes: Sequence[Change]) -> bool:
    """Return whether nothing differs but the length of a run, which is more now."""
    by_name = {change.name: change for change in changes}
    if not by_name.keys() <= FOLLOW_FROM_LENGTH:
        return False
    # Minutes first: the steps that they come to are measured anew. Epochs come to steps,
    # and have their default where a number of steps was typed.
    for name in ("train.minutes", "train.steps"):
        change = by_name.get(name, Change(name, None, None))
        before = change.before
        after = change.after
        if isinstance(before, int | float) and isinstance(after, int | float):
            return after > before
    return False


def _unused_name(folder: Path) -> str:
    """Return a name for another run like this one."""
    # runs/laptop-2, runs/laptop-3, ...
    names = (f"{folder.name}-{number}" for number in count(2))
    return next(name for name in names if not (folder.parent / name).exists())


def _continuation(run: runs.RunFolder, resolved: AnyResolved) -> str:
    """Return the command that trains the model of a finished run further, as a run of
    its own, with what the user has set for a longer run.
    """
    config = resolved.config
    folder = run.folder
    if isinstance(config, FinetuneConfig):
        task = config.data.train or config.task.name
        words = ["litebert", "finetune", str(task), "--model", str(folder)]
    else:
        words = ["litebert", "pretrain"]
        if config.distil.teacher:
            words = ["litebert", "distil", str(config.distil.teacher)]
        words += ["--from", str(folder), "--corpus", config.data.corpus]
    words += ["--name", _unused_name(folder)]
    if folder.parent != Path("runs"):  # the default of --runs
        words += ["--runs", str(folder.parent)]
    files_of_settings = {
        origin.name for origin in resolved.origins.values() if origin.kind == "file"
    }
    for path in files_of_settings:
        words += ["--recipe", path]
    for name, value in flatten(config).items():
        section = name.partition(".")[0]
        # The run that is continued is the start, and has the shape.
        is_replaced = section in ("start", "model") or name in GIVEN_BY_OPTIONS
        if resolved.origins[name].is_typed and not is_replaced:
            words += words_of(name, value)
    return shlex.join(words)
