"""litebert finetune: from a pretrained model and a task to a model that answers."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.errors import LitebertError

if TYPE_CHECKING:
    from litebert.config import FinetuneConfig, Resolved, Settings
    from litebert.metrics.spread import Spread
    from litebert.train.finetune_plan import FinetunePlan


@click.command()
@click.argument("task")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--model", required=True, help="Pretrained model: a folder, or a name on the Hub.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of a named task.")
@click.option("--dev", type=click.Path(path_type=Path), help="With your own file: evaluate on it.")
@click.option("--column", multiple=True, metavar="ROLE=NAME", help="text=review, label=stars, ...")
@click.option("--problem", help="Kind of your own task, where the guess is wrong.")
@click.option("--recipe", help="A name, or a TOML file; the task's own by default.")
@click.option("--epochs", type=float, help="Passes over the data.")
@click.option("--name", help="Name of the run; the task's by default.")
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path))
@click.option("--seeds", default="", help="Several runs, 1,2,3: median, mean and spread.")
@click.option("--random", "is_random", is_flag=True, help="Random weights: the control.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
def finetune(
    task: str,
    words: tuple[str, ...],
    model: str,
    data: Path | None,
    dev: Path | None,
    column: tuple[str, ...],
    problem: str | None,
    recipe: str | None,
    epochs: float | None,
    name: str | None,
    runs: Path,
    seeds: str,
    is_random: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fine-tune a model on a named task, or on your own CSV, JSONL or Parquet file.

    The same command again goes on where it stopped.

    \b
    litebert finetune mrpc --model models/mine --data glue
    litebert finetune reviews.csv --model models/mine --column text=body --epochs 2
    """
    own = Path(task) if Path(task).suffix or Path(task).is_file() else None
    if own is None and data is None:
        _require_data(task, words)
    flags: dict[str, object] = {
        "model.start": model,
        "model.random": is_random or None,
        "data.folder": None if data is None else str(data),
        "data.dev": None if dev is None else str(dev),
        "data.columns": list(column) or None,
        "data.problem": problem,
        "train.epochs": epochs,
        "train.steps": None if epochs is None else 0,
    }
    if own is not None:
        flags |= {"task.name": "table", "data.train": str(own)}
    resolved = resolve_finetuning("table" if own else task, recipe, flags, words)
    folder = runs / (name or (own.stem.split(".")[0] if own else task))
    if dry_run:
        from litebert.train.finetune_plan import plan_finetuning

        _print_plan(plan_finetuning(resolved, folder), as_json=as_json)
        return
    numbers = seed_numbers(seeds)
    folders = train_seeds(resolved, folder, seeds=numbers, is_quiet=quiet)
    report = report_seeds(folder, folders)
    if as_json:
        click.echo(_results_json(folders, is_several=bool(numbers)))
        return
    _print_results(folders, report)


def _require_data(task: str, words: tuple[str, ...]) -> None:
    if not any(word.startswith("data.") for word in words):
        raise LitebertError(
            "LB-531",
            f"where is the data of {task}?",
            received="no --data",
            expected="the folder of a named task, or a file of your own instead of its name",
            next=f"litebert finetune {task} --model MODEL --data FOLDER",
        )


def resolve_finetuning(
    task: str, recipe: str | None, flags: dict[str, object], words: tuple[str, ...]
) -> Resolved[FinetuneConfig]:
    """Merge the recipe of a task, or another one, with what was typed."""
    from litebert.cli.recipes import recipe_settings
    from litebert.config import FinetuneConfig, Origin, Setting, resolve, settings_from_words
    from litebert.tasks.registry import require_task

    require_task(task)
    settings: Settings = recipe_settings("finetune", recipe or task)
    typed = Origin("flag")
    given = {key: Setting(value, typed) for key, value in flags.items() if value is not None}  # type: ignore[arg-type]
    return resolve(FinetuneConfig, settings, given, settings_from_words(words))


def seed_numbers(text: str) -> list[int]:
    """Read seeds with commas between them."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise LitebertError(
            "LB-524",
            "these are not seeds",
            received=text,
            expected="whole numbers with commas between them",
            next="litebert finetune ... --seeds 1,2,3",
        ) from error


def _print_plan(plan: FinetunePlan, *, as_json: bool) -> None:
    from litebert.train import duration

    prepared, needs, train = plan.prepared, plan.needs, plan.prepared.config.train
    shape = prepared.network_config
    rows = {
        "task": f"{prepared.dataset.name}, {prepared.dataset.family.head.kind}",
        "model": f"{prepared.start}, H {shape.hidden_size} x {shape.num_hidden_layers} layers",
        "parameters": f"{needs.num_parameters:,}",
        "examples": f"{prepared.num_examples:,} in {len(prepared.features):,} sequences or windows",
        **{f"  {name}": f"{len(held.examples):,}" for name, held in prepared.held_out.items()},
        "steps": f"{train.steps:,} of {train.batch_size}, evaluated every {train.eval_every:,}",
        "tokens": f"{plan.tokens_per_step:,.0f} a step",
        "memory": f"{needs.memory_bytes / 2**30:.2f} GiB",
        "disk": f"{needs.disk_bytes / 2**30:.2f} GiB",
        "time": f"{duration(needs.seconds(train.steps))} on this machine, without evaluations",
    }
    if as_json:
        extra = {"steps": train.steps, "seconds": needs.seconds(train.steps)}
        click.echo(json.dumps({**asdict(needs), **extra}, indent=2))
        return
    for name, value in rows.items():
        click.echo(f"{name:<13} {value}")
    for note in prepared.dataset.notes:
        click.echo(f"note          {note}")


def train_seeds(
    resolved: Resolved[FinetuneConfig], folder: Path, *, seeds: list[int], is_quiet: bool
) -> list[Path]:
    """Train in `folder`, or in a folder below it for each seed; return the folders of the runs.

    What is finished already is left as it is. An interruption ends the process with its code.
    """
    from litebert.config import Origin, Resolved
    from litebert.train.finetune import finetune as train_model

    folders = [folder / f"seed-{seed}" for seed in seeds] or [folder]
    for run, seed in zip(folders, seeds or [resolved.config.train.seed], strict=True):
        train = resolved.config.train.model_copy(update={"seed": seed})
        config = resolved.config.model_copy(update={"train": train})
        origins = resolved.origins | ({"train.seed": Origin("flag")} if seeds else {})
        outcome = train_model(Resolved(config, origins), run, is_quiet=is_quiet)
        if outcome.model is None:
            click.echo(f"stopped at step {outcome.step}; the same command goes on", err=True)
            sys.exit(outcome.exit_code)
    return folders


def report_seeds(folder: Path, folders: list[Path]) -> Path | None:
    """Write the page of each run, and the one about all seeds; return the last one's path."""
    from litebert.report import write_report

    try:
        return [write_report(run) for run in dict.fromkeys([*folders, folder])][-1]
    except LitebertError as error:  # the models are there; only their picture is not
        click.echo(str(error), err=True)
        return None


def _results_json(folders: list[Path], *, is_several: bool) -> str:
    from litebert.files import read_json
    from litebert.runs import RESULT_FILE

    results = [read_json(run / RESULT_FILE, command=f"ls {run}") for run in folders]
    return json.dumps(results if is_several else results[0], indent=2)


def _print_results(folders: list[Path], report: Path | None) -> None:
    from litebert.train.seeds import summarise

    _print_result(summarise(folders))
    for run in folders:
        click.echo(f"model   {run / 'model'}  (best evaluation: {run / 'best'})")
    click.echo(f"report  {report or 'not written'}")


def _print_result(summary: dict[str, dict[str, Spread]]) -> None:
    """Print last step and best evaluation side by side; they are never mixed."""
    number = next(iter(summary["last"].values())).number
    click.echo(f"{'':<24}{'last step':>12}{'best step':>12}" + ("  over seeds" * (number > 1)))
    for name, last in summary["last"].items():
        best = summary["best"][name]
        click.echo(f"{name:<24}{last.median:>12.4f}{best.median:>12.4f}", nl=number == 1)
        if number > 1:
            click.echo(f"  median of {number}; mean {last.mean:.4f} ± {last.spread:.4f} (last)")
