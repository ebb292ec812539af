"""A run when training begins: begin or resume it, with which threads and precision it
computes, and how its model is written.
"""

import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeAlias

import torch
from pydantic import JsonValue

import litebert
from litebert import files, runs
from litebert.config import FinetuneConfig, Precision, PretrainConfig, TrainConfig
from litebert.device import Device, choose_device
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.folder import MODEL_FILES, ModelFolder, write_folder
from litebert.folder.card import CARD_FILE, write_card
from litebert.plugins import file_of_plugin
from litebert.settings import (
    Resolved,
    difference,
    flatten,
    plugins_of,
    settings_at_default,
)

Config: TypeAlias = PretrainConfig | FinetuneConfig

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
# What differs if only the length of a run does: then the error says how to continue a
# finished run.
LENGTHS = (
    "train.steps",
    "train.epochs",
    "train.minutes",
    "train.eval_every",
    "optim.warmup_steps",
)


# ---- begin or resume -----------------------------------------------------------------


def begin(
    folder: Path,
    resolved: Resolved[PretrainConfig] | Resolved[FinetuneConfig],
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
            _require_same(run, resolved.config, data, FREE_SETTINGS)
            return run.has_model  # without one, the run is resumed
        if group is not None:
            _require_same_as_seeds(group, resolved.config, data)
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


def settled_precision(
    train: TrainConfig, recorded: Mapping[str, JsonValue]
) -> Precision:
    """Return the precision of a run; if its settings leave it open, the one that was
    `recorded` when it began, or else the one that suits this machine.
    """
    device = choose_device(train.device)
    # measured again, it might be another: a run that is resumed would change
    former = recorded.get("train.precision")
    if train.precision in (None, "auto") and former:
        return device.precision(str(former))
    return device.precision(train.precision)


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
    config: Config,
    data: Mapping[str, JsonValue],
    free: set[str],
) -> None:
    """Raise unless a run has the settings of `config`, except for those that are `free`,
    and these data.
    """
    # The settings first: other data are usually a consequence of other settings.
    settings = flatten(config)
    changed = list[str]()
    # each text begins with the name of its setting and a colon
    for text in difference(_as_of_this_version(run.settings, config), settings):
        if text.split(":")[0] not in free:
            changed.append(text)
    if changed:
        raise _begun_otherwise(run, settings, changed)
    former = run.file.data  # hashes and counts
    differing = list[str]()
    for name in sorted({*former, *data}):
        if former.get(name) != data.get(name):
            differing.append(name)
    if differing:
        raise _data_changed(run, settings, differing)


def _require_same_as_seeds(
    group: Path,
    config: Config,
    data: Mapping[str, JsonValue],
) -> None:
    """Raise unless a new seed has the settings and data of the other seeds."""
    seeds = runs.RunFolder(group).seeds
    if seeds:
        _require_same(seeds[0], config, data, FREE_SETTINGS | {"train.seed"})


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


def changed_settings(run: runs.RunFolder, config: Config) -> list[str]:
    """Return in words which settings litebert did not have when a run was begun, or no
    longer has.
    """
    names = flatten(config).keys()
    added = sorted(names - run.settings.keys())
    removed = sorted(run.settings.keys() - names)
    words = [f"{name} is new and has its default" for name in added]
    words += [f"{name} is gone and changed nothing" for name in removed]
    return words


def _data_changed(
    run: runs.RunFolder, settings: Mapping[str, JsonValue], changed: Sequence[str]
) -> LitebertError:
    """Return the error for a run whose data are no longer those it was begun with;
    `changed` are the names of what run.json records of them.
    """
    what = "its data or its start model"
    if "train_hash" in changed:  # of the user's own file
        what = f"{settings['data.train']}"
    return LitebertError(
        "LB-505",
        f"{what} has changed since {run.folder} was begun",
        received=f"other values of {', '.join(changed)} than in its run.json",
        expected="the same data: a run that is resumed has seen some of them",
        next=f"the same command with --name {_unused_name(run.folder)}",
    )


def _begun_otherwise(
    run: runs.RunFolder, settings: Mapping[str, JsonValue], differing: Sequence[str]
) -> LitebertError:
    """Return the error for a run that was begun with other settings, each of
    `differing` in words.
    """
    advice = (
        "repeat the first command to resume it; for another run, choose a --name such"
        f" as {_unused_name(run.folder)}"
    )
    is_longer = all(text.split(":")[0] in LENGTHS for text in differing)
    if run.settings.keys() != settings.keys():
        advice = (
            "another version of litebert began it: resume it with that one, or choose"
            " another --name"
        )
    elif is_longer and run.is_finished:
        advice = _continuation(run, settings)
    return LitebertError(
        "LB-505",
        f"{run.folder} was begun with other settings",
        received="; ".join(differing),
        expected="the settings in its run.json",
        next=advice,
    )


def _unused_name(folder: Path) -> str:
    """Return a name for another run like this one."""
    # runs/laptop-2, runs/laptop-3, ...
    names = (f"{folder.name}-{number}" for number in count(2))
    return next(name for name in names if not (folder.parent / name).exists())


def _continuation(run: runs.RunFolder, settings: Mapping[str, JsonValue]) -> str:
    """Return the command that trains the model of a finished run further, as a run of
    its own; `settings` are those of the longer run that was asked for.
    """
    folder = run.folder
    if run.kind == "pretraining":
        words = ["litebert", "pretrain", "--from", str(folder)]
        words += ["--corpus", str(settings["data.corpus"])]
    else:
        task = settings["data.train"] or settings["task.name"]
        words = ["litebert", "finetune", str(task), "--model", str(folder)]
        words += _data_options(settings)
    words += ["--name", f"{folder.name}-more"]
    if folder.parent != Path("runs"):  # the default of --runs
        words += ["--runs", str(folder.parent)]
    if settings["train.minutes"]:
        words += ["--minutes", f"{settings['train.minutes']:g}"]
    else:
        words.append(f"train.steps={settings['train.steps']}")
    return shlex.join(words)


def _data_options(settings: Mapping[str, JsonValue]) -> list[str]:
    """Return the options that name the data of a fine-tuning."""
    options = list[str]()
    if settings["data.folder"]:
        options += ["--data", str(settings["data.folder"])]
    if settings["data.dev"]:
        options += ["--dev", str(settings["data.dev"])]
    columns = settings["data.columns"]
    if isinstance(columns, list | tuple):
        for column in columns:
            options += ["--column", str(column)]
    return options


# ---- computing and models ------------------------------------------------------------


@contextmanager
def computing(train: TrainConfig, device: Device) -> Iterator[None]:
    """Compute with the threads, the precision and the determinism that are set."""
    # All three belong to the process, and are restored after the block.
    dtype = device.dtype(train.precision)
    with (
        threads(train.threads),
        device.computing(dtype, is_deterministic=train.deterministic),
    ):
        yield


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute with this many CPU threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


WRITTEN_FILES = (*MODEL_FILES, CARD_FILE)
"""The names of all files that `write_model` writes into any folder."""


def write_model(
    folder: Path,
    model: ModelFolder,
    *,
    has_card: bool = False,
    if_exists: files.IfExists = "replace",
) -> None:
    """Write a model folder, and optionally its card, atomically."""
    with files.staged_folder(
        folder, if_exists=if_exists, known_files=WRITTEN_FILES
    ) as staged:
        write_folder(model, staged)
        if has_card:
            write_card(staged, final=folder)
