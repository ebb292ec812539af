"""A run during training: its lock and signals, begin or resume, device and threads, its
model, its progress.
"""

import math
import os
import platform
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from pydantic import JsonValue

import litebert
from litebert import files, runs
from litebert.config import FinetuneConfig, PretrainConfig, TrainConfig
from litebert.device import Device, choose_device
from litebert.distributed import ALONE, World
from litebert.errors import (
    LitebertError,
    format_count,
    format_duration,
    is_terminal,
    say,
    show_status,
)
from litebert.files import Json
from litebert.folder import MODEL_FILES, ModelFolder, write_folder
from litebert.folder.card import CARD_FILE, write_card
from litebert.plugins import file_of_plugin
from litebert.settings import Resolved, difference, flatten, plugins_of
from litebert.system import HANGUP, STOP_SIGNALS
from litebert.tasks.heads import pretraining_measures

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
# the longest silence before the first and a later line of progress
FIRST_LINE_SECONDS = 4.0
LATER_LINE_SECONDS = 30.0
MOST_MEASURES = 5  # in a line of fine-tuning
STATUS_SECONDS = 0.2  # between two updates of the progress bar
# what differs if only the length of a run does
LENGTHS = (
    "train.steps",
    "train.epochs",
    "train.minutes",
    "train.eval_every",
    "optim.warmup_steps",
)


# ---- the lock and the signals of a run -----------------------------------------------


@dataclass
class Session:
    """A run being trained: where, by which processes, since when, and whether it should
    stop after the current step.
    """

    folder: Path
    world: World = ALONE
    begun: float = field(default_factory=time.monotonic)
    signal_number: int = 0  # of the signal that requested a stop
    parent: int = field(default_factory=os.getppid)

    def should_stop(self) -> bool:
        """Return whether any process got a signal; processes of torchrun also stop when
        torchrun is gone.
        """
        # A process whose parent has died gets another one.
        if "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != self.parent:
            self.signal_number = self.signal_number or HANGUP
        # Summed over all processes, so that all stop after the same step.
        return self.world.totals(self.signal_number)[0] > 0

    def exit_code(self) -> int:
        """Return the exit code of a run stopped before its last step: 128 + the signal
        of a process, or 0.
        """
        # Only one of the processes may have got the signal: all end with its code.
        number = max(self.world.gather(self.signal_number))
        return 128 + number if number else 0


@contextmanager
def session(folder: Path, world: World = ALONE) -> Iterator[Session]:
    """Lock the folder of a run, remove what a killed process left in it, and treat a
    signal as a request to stop.
    """

    def busy() -> LitebertError:
        return LitebertError(
            "LB-504",
            f"another process is training in {folder}",
            received=runs.holder_of(folder),
            next="wait for it, stop it, or choose another --name",
        )

    opened = Session(folder, world)
    if not world.is_first:
        with _stop_on_signals(opened):
            yield opened
        return
    runs.require_run_folder(folder)
    with files.locked(folder, busy), _stop_on_signals(opened):
        runs.claim(folder)
        for place in (folder, folder / "checkpoints", folder / runs.ANSWERS):
            files.clear_stale(place)
        yield opened


@contextmanager
def _stop_on_signals(session: Session) -> Iterator[None]:
    """Note a signal in the session instead of ending the process.

    A second signal has its usual, immediate effect, but not with several processes:
    their launcher forwards signals that they have already received, and kills them in
    the end. An ignored signal (SIGHUP under nohup) stays ignored. Outside the main
    thread no handlers are set, because Python does not allow it.
    """
    previous = dict[int, Any]()  # handlers by signal
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                previous[number] = handler

    def request(number: int, _: FrameType | None) -> None:
        session.signal_number = number
        if session.world.size == 1:
            for handled in previous:
                signal.signal(handled, signal.SIG_DFL)

    try:
        for number in previous:
            signal.signal(number, request)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


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

    def write_or_check() -> bool:
        is_new = not runs.is_run(folder)
        seeds = runs.RunFolder(group).seeds if group is not None else []
        if is_new and seeds:
            _require_same(seeds[0], settings, data, FREE_SETTINGS | {"train.seed"})
        if not is_new:
            run = runs.RunFolder(folder)
            _require_same(run, settings, data, FREE_SETTINGS)
            return run.has_model
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
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "gpu": None if device.is_cpu else device.name,
    }


def _require_same(
    run: runs.RunFolder,
    settings: Mapping[str, JsonValue],
    data: Mapping[str, JsonValue],
    free: set[str],
) -> None:
    """Raise unless a run has these settings, except for those that are `free`, and these
    data.
    """
    changed = list[str]()
    for text in difference(run.settings, settings):
        if text.split(":")[0] not in free:
            changed.append(text)
    if changed:
        raise _begun_otherwise(run, settings, changed)
    old = run.file.data
    changed = [
        name for name in sorted({*old, *data}) if old.get(name) != data.get(name)
    ]
    if changed:
        raise _data_changed(run, settings, changed)


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
    names = (f"{folder.name}-{number}" for number in count(2))
    return next(name for name in names if not (folder.parent / name).exists())


def _continuation(run: runs.RunFolder, settings: Mapping[str, JsonValue]) -> str:
    """Return the command that trains the model of a finished run further, as a run of
    its own.
    """
    folder = run.folder
    words = ["litebert", "pretrain", "--from", str(folder)]
    if run.kind == "pretraining":
        words += ["--corpus", str(settings["data.corpus"])]
    else:
        data = settings["data.train"]
        words = ["litebert", "finetune", str(data or settings["task.name"])]
        words += ["--model", str(folder)]
        for flag, name in (("--data", "data.folder"), ("--dev", "data.dev")):
            if settings[name]:
                words += [flag, str(settings[name])]
        columns = settings["data.columns"]
        for column in columns if isinstance(columns, list | tuple) else ():
            words += ["--column", str(column)]
    words += ["--name", f"{folder.name}-more"]
    if folder.parent != Path("runs"):
        words += ["--runs", str(folder.parent)]
    if settings["train.minutes"]:
        words += ["--minutes", f"{settings['train.minutes']:g}"]
    else:
        words.append(f"train.steps={settings['train.steps']}")
    return shlex.join(words)


# ---- threads and models --------------------------------------------------------------


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
    force: bool | None = True,
) -> None:
    """Write a model folder, and optionally its card, atomically."""
    with files.staged_folder(folder, force=force, known_files=WRITTEN_FILES) as staged:
        write_folder(model, staged)
        if has_card:
            write_card(staged, final=folder)


# ---- progress: lines on stderr, rows in metrics.jsonl --------------------------------


@dataclass
class RunLog:
    """Writes rows and lines in the first process, and measures the time of training and
    evaluation.
    """

    session: Session
    train: TrainConfig
    device: Device
    is_quiet: bool = False
    # of forward and backward passes; None: unknown
    flops_per_token: float | None = None
    # time.monotonic() at the end of a run by the clock; its number of steps is an
    # estimate
    ends: float | None = None
    evaluation_seconds: float = 0.0  # of the last one
    total_steps: int = 0
    tokens: int = 0  # since the last report, or the beginning
    # held-out measures of a fine-tuning without any learning
    baseline: Mapping[str, float] = field(default_factory=dict)
    # the last report, or the beginning
    _since: float = field(default_factory=time.monotonic)
    _last_step: int = 0  # of that report
    _pace: float = 0.0  # seconds per step
    _shown: float = field(default_factory=time.monotonic)
    _patience: float = FIRST_LINE_SECONDS

    def begin(self, step: int, total_steps: int) -> None:
        """Report that training begins or resumes after `step`; drop the rows of later
        steps: they will be redone.
        """
        if self.session.world.is_first:
            for line in runs.truncate_after(self.session.folder, step or -1):
                self.say(
                    f"line {line} of metrics.jsonl is damaged, moved to"
                    f" {runs.DAMAGED_FILE}"
                )
        self._since = time.monotonic()
        self._last_step = step
        self.total_steps = total_steps
        verb = "resuming" if step else "training"
        on = format_count(torch.get_num_threads(), "thread")
        self.say(f"{verb} from step {step:,} of {total_steps:,} on {on}")

    def advance(self, step: int, total_steps: int) -> None:
        """Count a step: update the progress bar, or print a line after a long
        silence.
        """
        self.total_steps = total_steps
        now = time.monotonic()
        is_live = is_terminal() and not self.is_quiet
        silence = STATUS_SECONDS if is_live else self._patience
        if step == self._last_step or now - self._shown <= silence:
            return
        pace = (now - self._since) / (step - self._last_step)
        left = self._left(step, pace)
        line = f"step {step}/{total_steps}  left {left}  {self._memory()}"
        if is_live:
            self._shown = now
            show_status(step, total_steps, line)
        else:
            self.say(line)
            self._patience = LATER_LINE_SECONDS

    def _memory(self) -> str:
        """Return the peak of the memory that this process has used."""
        return f"{self.device.peak_bytes() / 2**30:.1f} GB"

    def training(
        self,
        step: int,
        tokens: int,
        measures: dict[str, float],
        rates: dict[str, float],
    ) -> None:
        """Report the steps since the last report: their mean losses and their speed."""
        now = time.monotonic()
        seconds = max(now - self._since, 1e-9)
        # Seconds per step, smoothed: other programs on the machine come and go.
        pace = seconds / max(1, step - self._last_step)
        if self._pace:
            pace = 0.7 * self._pace + 0.3 * pace
        self._pace = pace
        self._since = now
        self._last_step = step
        # `tokens` are all of the run: a resumed one has not read them all by itself
        speed = self.tokens / seconds
        self.tokens = 0
        counts = {"tokens": tokens, "tokens_per_second": round(speed, 1)}
        of_peak = ""
        share = self._utilization(speed)
        if share is not None:
            counts["mfu"] = round(share, 4)
            of_peak = f"  MFU {share:.1%}"
        self._record({"kind": "train", "step": step, **measures, **rates, **counts})
        width = len(str(self.total_steps))
        parts = (
            f"step {step:>{width}}/{self.total_steps}",
            self._words(measures),
            f"lr {rates['learning_rate']:.2e}",
            f"{speed:,.0f} tok/s{of_peak}",
            f"left {self._left(step, pace)}",
            self._memory(),
        )
        self.say("  ".join(parts))

    def _utilization(self, tokens_per_second: float) -> float | None:
        """Return the model FLOP utilization: the share of the peak in half precision,
        over all processes; None where either is unknown.
        """
        peak = self.device.peak_flops
        if peak is None or self.flops_per_token is None:
            return None
        flops = tokens_per_second * self.flops_per_token  # per second
        return flops / (peak * self.session.world.size)

    def evaluation(self, step: int, evaluate: Callable[[], dict[str, float]]) -> None:
        """Evaluate on held-out data and report it; the time it takes is not counted as
        training.
        """
        begun = time.monotonic()
        measures = evaluate()
        self._record({"kind": "eval", "step": step, **measures})
        words = self._words(measures, with_baseline=True)
        self.say(f"step {step}, held out: {words}")
        unknown = [name for name in measures if not math.isfinite(measures[name])]
        if unknown:
            self.note(step, f"not finite at step {step}: {', '.join(unknown)}")
        self.evaluation_seconds = time.monotonic() - begun
        # As if the clock had stood still: the speed is that of training.
        self._since += self.evaluation_seconds

    def note(self, step: int, text: str, *, is_warning: bool = False) -> None:
        """Report an event, such as a skipped step."""
        self._record({"kind": "note", "step": step, "text": text})
        self.say(text, is_warning=is_warning)

    def say(self, text: str, *, is_warning: bool = False) -> None:
        """Print a line for people; a quiet run prints only warnings, such as that of a
        damaged checkpoint.
        """
        self._shown = time.monotonic()
        if self.session.world.is_first and (is_warning or not self.is_quiet):
            say(text)

    def _record(self, row: dict[str, Json]) -> None:
        """Append a row to metrics.jsonl; only the first process writes."""
        folder = self.session.folder
        if not self.session.world.is_first:
            return
        if not runs.is_run(folder):
            raise LitebertError(
                "LB-543",
                f"{folder} was deleted or moved while its run was running",
                next="run the same command again: it starts afresh, or resumes a"
                " restored folder",
            )
        files.append_line(folder / runs.METRICS_FILE, runs.line_of(row))

    def _left(self, step: int, pace: float) -> str:
        """Return the time to the end; a run by the clock may need more than its time
        for the fewest steps of a run.
        """
        seconds = pace * (self.total_steps - step)
        if self.ends is None:
            every = self.train.eval_every
            # at the multiples of `every` that are left before the last step, and there
            num_evaluations = (self.train.steps - 1) // every - step // every + 1
            seconds += num_evaluations * self.evaluation_seconds
        else:
            # Steps and evaluations fill the time, whatever their pace is.
            by_clock = self.ends - time.monotonic()
            if by_clock > 0:
                seconds = by_clock
        return format_duration(seconds) if seconds >= 1 else "<1s"

    def _words(self, measures: dict[str, float], *, with_baseline: bool = False) -> str:
        """Return measures for a line; a held-out one beside its value without any
        learning.
        """
        words = self._pretraining_words(measures, with_baseline)
        if not words:
            words = self._task_words(measures, with_baseline)
        return ", ".join(words)

    def _pretraining_words(
        self, measures: dict[str, float], with_baseline: bool
    ) -> list[str]:
        """Return the measures that heads of pretraining declare, with their units."""
        words = list[str]()
        for measure in pretraining_measures():
            if not measure.short or measure.name not in measures:
                continue
            text = measure.short.format(measures[measure.name])
            chance = measure.chance
            if isinstance(chance, str):  # the name of the measure that has it
                chance = measures.get(chance)
            if with_baseline and chance is not None:
                text += f" ({chance:.1%} without learning)"
            words.append(text)
        return words

    def _task_words(self, measures: dict[str, float], with_baseline: bool) -> list[str]:
        """Return the first measures of a fine-tuning; the words `without learning` are
        written once.
        """
        words = list[str]()
        explanation = " without learning"
        for name in list(measures)[:MOST_MEASURES]:
            text = f"{name} {measures[name]:.4g}"
            if with_baseline and name in self.baseline:
                text += f" ({self.baseline[name]:.4g}{explanation})"
                explanation = ""
            words.append(text)
        return words
