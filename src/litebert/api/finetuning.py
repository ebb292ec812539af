"""Fine-tuning as a function: from a pretrained model and a task to a run with a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path

from litebert.api.plan import RunPlan, needs_in_numbers, needs_in_words, processes_in_words
from litebert.api.progress import Progress
from litebert.api.recipes import recipe_settings
from litebert.api.run import Run, concluded
from litebert.api.settings import Overrides, flags, overrides, require_types, run_folder
from litebert.config import FinetuneConfig, Origin, Problem, Resolved, Setting, resolve
from litebert.distributed.world import World, joined, world_size
from litebert.errors import LitebertError
from litebert.hub import packaged_model
from litebert.inference import PACKAGED
from litebert.tasks.registry import require_task
from litebert.train.finetune import FinetunePlan, plan_finetuning
from litebert.train.finetune import finetune as train_model
from litebert.train.run import choose_device

START = "model.start"


@dataclass(frozen=True, kw_only=True)
class FinetuneJob:
    """One fine-tuning, checked when it is made; `plan` tells what `run` will do.

    Raises:
        LitebertError: A setting, a name or the data cannot be used.
    """

    task: str
    model: str | Path | None = None
    data: str | Path | None = None
    dev: str | Path | None = None
    columns: Sequence[str] = ()
    problem: Problem | None = None
    recipe: str | None = None
    epochs: float | None = None
    name: str | None = None
    runs: str | Path = "runs"
    seeds: Sequence[int] = ()
    random: bool = False
    teacher: str | Path | None = None
    skip_unlabelled: bool = False
    settings: Overrides = ()

    def __post_init__(self) -> None:
        """Check everything that can be checked before any work."""
        require_types(FinetuneJob, vars(self))
        if self.own is None:
            require_task(self.task)
        if self.own is None and self.data is None:
            _require_data(self.task, self.settings)
        _ = self.resolved, self.folder

    @property
    def own(self) -> Path | None:
        """The user's file of examples, where the task is not a named one."""
        path = Path(self.task)
        return path if path.suffix or path.is_file() else None

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the runs of several seeds."""
        default = self.own.name.split(".")[0] if self.own else self.task
        return run_folder(self.runs, self.name or default)

    @property
    def resolved(self) -> Resolved[FinetuneConfig]:
        """The settings of the run with the origin of each."""
        task = "table" if self.own else self.task
        require_task(task)
        given = flags(
            {
                START: None if self.model is None else fspath(self.model),
                "model.random": self.random or None,
                "data.folder": None if self.data is None else str(self.data),
                "data.dev": None if self.dev is None else str(self.dev),
                "data.columns": list(self.columns) or None,
                "data.problem": self.problem,
                "data.missing_labels": "skip" if self.skip_unlabelled else None,
                "teacher.run": None if self.teacher is None else fspath(self.teacher),
                "train.epochs": self.epochs,
                "train.steps": None if self.epochs is None else 0,
                "task.name": "table" if self.own else None,
                "data.train": str(self.own) if self.own else None,
            }
        )
        recipe = recipe_settings("finetune", self.recipe or task)
        chosen = recipe | given | overrides(self.settings)
        if START not in chosen:
            chosen |= {START: Setting(str(packaged_model()), Origin())}
        return resolve(FinetuneConfig, chosen)

    def plan(self) -> RunPlan:
        """Say what the run will do and need, measured on a few of its examples; writes nothing."""
        return self._described(plan_finetuning(self.resolved, self.folder))

    def _start(self) -> str:
        """Name the model that training starts from, for people."""
        resolved = self.resolved
        is_packaged = resolved.origins[START] == Origin()
        return PACKAGED if is_packaged else resolved.config.model.start

    def _described(self, found: FinetunePlan) -> RunPlan:
        prepared, needs, train = found.prepared, found.needs, found.prepared.config.train
        shape, head = prepared.network_config, prepared.dataset.family.head
        optim, origins = prepared.config.optim, prepared.resolved.origins
        key = prepared.key_measure
        commonest = (
            f"{key} {prepared.baseline[key]:.4f} without any learning" if key in prepared.baseline else "unknown"
        )
        lines = {
            "model": f"{self._start()}, H {shape.hidden_size} x {shape.num_hidden_layers} layers",
            "task": f"{prepared.dataset.name}, {head.kind}",
            "parameters": f"{needs.num_parameters:,}",
            "examples": f"{prepared.num_examples:,} in {len(prepared.features):,} sequences or windows",
            **{f"  {name}": f"{len(held.examples):,}" for name, held in prepared.held_out.items()},
            "steps": f"{train.steps:,} steps of {train.batch_size} examples, evaluated every {train.eval_every:,}",
            "rate": f"{optim.learning_rate:g} ({origins['optim.learning_rate']})"
            + f", of the head {optim.head_rate_scale:g} times that" * (optim.head_rate_scale != 1),
            "commonest": commonest,
            "tokens": f"{found.tokens_per_step:,.0f} a step",
            **needs_in_words(needs, train.steps),
            **processes_in_words(needs, world_size(), train.batch_size),
            "results": str(self.folder),
        }
        return RunPlan(lines, needs_in_numbers(needs, train.steps), prepared.dataset.notes)

    def run(self, *, quiet: bool = False) -> Run:
        """Train or resume, in a folder of its own for each seed, and write the reports.

        Started by torchrun, each process calls this: the first one writes, all train.
        """
        with joined(choose_device(self.resolved.config.train.device)) as world:
            return self._run(world, quiet=quiet or not world.is_first)

    def _run(self, world: World, *, quiet: bool) -> Run:
        say = Progress("", "", is_quiet=quiet).say
        folders = [self.folder / f"seed-{seed}" for seed in self.seeds] or [self.folder]
        was_finished = all(Run(folder).is_finished for folder in folders)
        resolved = self.resolved
        prepared = None
        if not was_finished and not quiet:
            plan = plan_finetuning(resolved, self.folder)
            say(str(self._described(plan)))
            prepared = None if self.seeds else plan.prepared
        for number, (folder, seed) in enumerate(zip(folders, self.seeds or [resolved.config.train.seed], strict=True)):
            seeded = _seeded(resolved, seed) if self.seeds else resolved
            outcome = train_model(
                seeded, folder, prepared=prepared, is_quiet=quiet, says_start=number == 0, world=world
            )
            if outcome.model is None:
                run = Run(self.folder, outcome.exit_code)
                return concluded(run, say) if world.is_first else run
        if not world.is_first:
            return Run(self.folder)
        return concluded(Run(self.folder), say, was_finished=was_finished)


def finetune(
    task: str,
    *,
    model: str | Path | None = None,
    data: str | Path | None = None,
    dev: str | Path | None = None,
    columns: Sequence[str] = (),
    problem: Problem | None = None,
    recipe: str | None = None,
    epochs: float | None = None,
    name: str | None = None,
    runs: str | Path = "runs",
    seeds: Sequence[int] = (),
    random: bool = False,
    teacher: str | Path | None = None,
    skip_unlabelled: bool = False,
    settings: Overrides = (),
    quiet: bool = False,
) -> Run:
    """Fine-tune a model on a named task, or on your own CSV, JSONL or Parquet file.

    Without `model`, training starts from the packaged one. `columns` name the roles of your own
    columns, as in `columns=["text=body"]`; `random` starts from random weights, as a control;
    `teacher` is a fine-tuned run of the same task to learn from as well; `skip_unlabelled` omits
    rows without a label. With `seeds` there is a run for each, in `run.seeds`. Call it again to
    resume.

    Raises:
        LitebertError: A setting, the data or the disk does not allow it.
    """
    return FinetuneJob(
        task=task,
        model=model,
        data=data,
        dev=dev,
        columns=columns,
        problem=problem,
        recipe=recipe,
        epochs=epochs,
        name=name,
        runs=runs,
        seeds=seeds,
        random=random,
        teacher=teacher,
        skip_unlabelled=skip_unlabelled,
        settings=settings,
    ).run(quiet=quiet)


def _seeded(resolved: Resolved[FinetuneConfig], seed: int) -> Resolved[FinetuneConfig]:
    """Return the settings with another seed."""
    train = resolved.config.train.model_copy(update={"seed": int(seed)})
    config = resolved.config.model_copy(update={"train": train})
    return replace(resolved, config=config, origins=resolved.origins | {"train.seed": Origin("flag")})


def _require_data(task: str, settings: Overrides) -> None:
    if not any(str(name).startswith("data.") for name in settings):
        raise LitebertError(
            "LB-531",
            f"the data of {task} is missing",
            received="no --data",
            expected="the folder of a named task, or a file of your own instead of its name",
            next=f"litebert finetune {task} --data FOLDER",
        )
