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
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

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
from litebert.hub.card import CARD_FILE, write_card
from litebert.plugins import file_of_plugin
from litebert.settings import Resolved, difference, flatten, plugins_of
from litebert.system import HANGUP, STOP_SIGNALS
from litebert.tasks.heads import pretraining_measures

# settings that affect neither the data nor the numbers: a run may resume with other
# values
FREE_SETTINGS = {
    "train.log_every",
    "train.save_every",
    "train.keep_checkpoints",
    "train.keep_every",
}
FREE_SETTINGS |= {"train.loader_workers"}
# a path: the hash of its weights is in the data of the run, and may not change
FREE_SETTINGS |= {"model.start"}
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


def _begun_otherwise(
    run: runs.RunFolder, settings: Mapping[str, JsonValue], differing: Sequence[str]
) -> LitebertError:
    """Return the error for a run that was begun with other settings or data, each of
    `differing` in words.
    """
    advice = "repeat the first command, or choose another --name"
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
        if "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != self.parent:
            self.signal_number = self.signal_number or HANGUP
        return self.world.totals(self.signal_number)[0] > 0

    def exit_code(self) -> int:
        """Return the exit code of a run stopped before its last step: 128 + the signal
        of a process, or 0.
        """
        number = max(self.world.gather(self.signal_number))
        return 128 + number if number else 0


@contextmanager
def session(folder: Path, world: World = ALONE) -> Iterator[Session]:
    """Lock the folder of a run, remove what a killed process left in it, and treat a
    signal as a request to stop.

    A second signal has its usual, immediate effect, but not with several processes:
    their launcher forwards signals that they have already received, and kills them in
    the end. An ignored signal (SIGHUP under nohup) stays ignored. Outside the main
    thread no handlers are set, because Python does not allow it.
    """
    opened = Session(folder, world)
    is_main = threading.current_thread() is threading.main_thread()
    handlers = (
        {number: signal.getsignal(number) for number in STOP_SIGNALS} if is_main else {}
    )
    previous = {
        number: handler
        for number, handler in handlers.items()
        if handler is not signal.SIG_IGN
    }

    def request(number: int, _: FrameType | None) -> None:
        opened.signal_number = number
        for each in previous if world.size == 1 else ():
            signal.signal(each, signal.SIG_DFL)

    def busy() -> LitebertError:
        return LitebertError(
            "LB-504",
            f"another process is training in {folder}",
            received=runs.holder_of(folder),
            next="wait for it, stop it, or choose another --name",
        )

    if world.is_first:
        runs.require_run_folder(folder)
    with files.locked(folder, busy) if world.is_first else nullcontext():
        try:
            for number in previous:
                signal.signal(number, request)
            if world.is_first:
                runs.claim(folder)
                for place in (folder, folder / "checkpoints", folder / runs.ANSWERS):
                    files.clear_stale(place)
            yield opened
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
    for name in (
        ("train.batch_size", "distil.texts")
        if settings.get("distil.teacher")
        else ("train.batch_size",)
    ):
        if (size := int(str(settings[name]))) < world.size:
            what = "each process needs at least one example of every step"
            received = f"{name}={size} for {world.size} processes"
            advice = f"set {name}={world.size}, or start fewer processes"
            raise LitebertError("LB-282", what, received=received, next=advice)

    def write_or_check() -> bool:
        is_new = not runs.is_run(folder)
        free = FREE_SETTINGS
        run = runs.RunFolder(folder)
        if is_new and group and runs.RunFolder(group).seeds:
            free = FREE_SETTINGS | {"train.seed"}
            run = runs.RunFolder(group).seeds[0]
        # settings and data must be those of the run, except for settings that do not
        # affect the numbers
        if runs.is_run(run.folder):
            binding = [
                each
                for each in difference(run.settings, settings)
                if each.split(":")[0] not in free
            ]
            binding += [f"data of {each}" for each in difference(run.file.data, data)]
            if binding:
                raise _begun_otherwise(run, settings, binding)
        if is_new:
            environment: dict[str, JsonValue] = {
                "python": platform.python_version(),
                "torch": torch.__version__,
            }
            environment |= {
                "platform": platform.platform(),
                "threads": torch.get_num_threads(),
            }
            device = choose_device(resolved.config.train.device)
            environment["gpu"] = None if device.is_cpu else device.name
            given = {
                "origins": resolved.origins,
                "data": dict(data),
                "environment": environment,
            }
            needed = {*plugins, *plugins_of(resolved.config)}
            file = runs.RunFile(
                litebert=litebert.__version__,
                settings=settings,
                plugins={name: file_of_plugin(name) for name in sorted(needed)},
                **given,
            )
            files.write_json(folder / runs.RUN_FILE, file.model_dump(mode="json"))
            return False
        return run.has_model

    return bool(world.from_first(write_or_check))


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
    with files.staged_folder(folder, force=force, own=WRITTEN_FILES) as staged:
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
        for line in (
            runs.truncate_after(self.session.folder, step or -1)
            if self.session.world.is_first
            else ()
        ):
            self.say(
                f"line {line} of metrics.jsonl is damaged, moved to {runs.DAMAGED_FILE}"
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
        if step == self._last_step or now - self._shown <= (
            STATUS_SECONDS if is_live else self._patience
        ):
            return
        pace = (now - self._since) / (step - self._last_step)
        left = self._left(step, pace)
        used = self.device.peak_bytes() / 2**30
        line = f"step {step}/{total_steps}  left {left}  {used:.1f} GB"
        if is_live:
            self._shown = now
            show_status(step, total_steps, line)
        else:
            self.say(line)
            self._patience = LATER_LINE_SECONDS

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
        # seconds per step, smoothed: other programs on the machine come and go
        pace = seconds / max(1, step - self._last_step)
        self._pace = 0.7 * self._pace + 0.3 * pace if self._pace else pace
        self._since = now
        self._last_step = step
        # a resumed run reports steps that were done before, too
        speed = self.tokens / seconds
        self.tokens = 0
        counts = {"tokens": tokens, "tokens_per_second": round(speed, 1)}
        share = self._utilisation(speed)
        if share is not None:
            counts["mfu"] = round(share, 4)
        self._record({"kind": "train", "step": step, **measures, **rates, **counts})
        of_peak = "" if share is None else f"  MFU {share:.1%}"
        self.say(
            f"step {step:>{len(str(self.total_steps))}}/{self.total_steps} "
            f" {self._words(measures)}  lr {rates['learning_rate']:.2e}  {speed:,.0f}"
            f" tok/s{of_peak}  left {self._left(step, self._pace)} "
            f" {self.device.peak_bytes() / 2**30:.1f} GB"
        )

    def _utilisation(self, tokens_per_second: float) -> float | None:
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
        if unknown := [
            name for name, value in measures.items() if not math.isfinite(value)
        ]:
            self.note(step, f"not finite at step {step}: {', '.join(unknown)}")
        self.evaluation_seconds = time.monotonic() - begun
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
        folder = self.session.folder
        if self.session.world.is_first:
            if not runs.is_run(folder):
                again = (
                    "run the same command again: it starts afresh, or resumes a"
                    " restored folder"
                )
                raise LitebertError(
                    "LB-543",
                    f"{folder} was deleted or moved while its run was running",
                    next=again,
                )
            files.append_line(folder / runs.METRICS_FILE, runs.line_of(row))

    def _left(self, step: int, pace: float) -> str:
        """Return the time to the end; a run by the clock may need more than its time
        for the fewest steps of a run.
        """
        seconds = pace * (self.total_steps - step)
        if self.ends is None:
            steps = self.train.steps
            every = self.train.eval_every
            evaluations = (steps - 1) // every - step // every + 1
            seconds += evaluations * self.evaluation_seconds
        else:
            by_clock = self.ends - time.monotonic()
            seconds = by_clock if by_clock > 0 else seconds
        return format_duration(seconds) if seconds >= 1 else "<1s"

    def _words(self, measures: dict[str, float], *, with_baseline: bool = False) -> str:
        """Return measures for a line, each beside its value without any learning."""
        known = [
            measure
            for measure in pretraining_measures()
            if measure.short and measure.name in measures
        ]
        words = list[str]()
        for measure in known:
            text = measure.short.format(measures[measure.name])
            chance = measure.chance
            if isinstance(chance, str):
                chance = measures.get(chance)
            if with_baseline and chance is not None:
                text += f" ({chance:.1%} without learning)"
            words.append(text)
        if words:
            return ", ".join(words)
        is_said = False
        for name, value in list(measures.items())[:MOST_MEASURES]:
            text = f"{name} {value:.4g}"
            if with_baseline and name in self.baseline:
                without = "" if is_said else " without learning"
                text += f" ({self.baseline[name]:.4g}{without})"
                is_said = True
            words.append(text)
        return ", ".join(words)
