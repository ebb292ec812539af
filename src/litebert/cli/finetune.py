"""litebert finetune: fine-tune a pretrained model on a task or on your own examples."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from litebert.cli.ending import show_plan, show_result
from litebert.cli.loading import model_option, seed_numbers
from litebert.cli.output import stop
from litebert.config.finetune import Problem


@click.command()
@click.argument("task")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@model_option
@click.option("--data", type=click.Path(path_type=Path), help="Folder of a named task.")
@click.option("--dev", type=click.Path(path_type=Path), help="Your own evaluation file, for a TASK that is a file.")
@click.option("--column", multiple=True, metavar="ROLE=NAME", help="text=review, label=stars, ...")
@click.option("--problem", help=f"Kind of your own task, if the guess is wrong: {', '.join(get_args(Problem))}.")
@click.option("--recipe", help="A name, or a TOML file; the task's own by default.")
@click.option("--epochs", type=float, help="Passes over the data.")
@click.option("--name", help="Name of the run; the task's by default.")
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path))
@click.option("--seeds", default="", help="Several runs, 1,2,3: median, mean and spread.")
@click.option("--random", "is_random", is_flag=True, help="Start from random weights, as a control.")
@click.option("--teacher", metavar="RUN", help="Also learn from a run fine-tuned on this task.")
@click.option("--skip-unlabelled", is_flag=True, help="Omit rows without a label, and print their number.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
def finetune(
    task: str,
    words: tuple[str, ...],
    model: str | None,
    data: Path | None,
    dev: Path | None,
    column: tuple[str, ...],
    problem: Problem | None,
    recipe: str | None,
    epochs: float | None,
    name: str | None,
    runs: Path,
    seeds: str,
    is_random: bool,
    teacher: str | None,
    skip_unlabelled: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fine-tune a model on a named task, or on your own CSV, JSONL or Parquet file.

    Without --model it starts from the packaged one. Rerun the command to resume.

    \b
    litebert finetune reviews.csv
    litebert finetune mrpc --model models/mine --data glue
    litebert finetune reviews.csv --model models/mine --column text=body --epochs 2
    """
    from litebert.api.finetuning import FinetuneJob

    job = FinetuneJob(
        task=task,
        model=model,
        data=data,
        dev=dev,
        columns=column,
        problem=problem,
        recipe=recipe,
        epochs=epochs,
        name=name,
        runs=runs,
        seeds=seed_numbers(seeds),
        random=is_random,
        teacher=teacher,
        skip_unlabelled=skip_unlabelled,
        settings=words,
    )
    if dry_run:
        show_plan(job.plan, as_json=as_json)
        return
    run = job.run(quiet=quiet)
    stop(run.exit_code)
    show_result(run, as_json=as_json)
