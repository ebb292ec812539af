"""litebert data: check examples before they are trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from litebert.cli.loading import vocabulary_path
from litebert.cli.output import show, show_json, stop
from litebert.cli.texts import AtLeast
from litebert.config.finetune import Problem
from litebert.errors import DamagedError, LitebertError

if TYPE_CHECKING:
    from litebert.tasks.check import DataReport


@click.group()
def data() -> None:
    """Check examples: your own files, or those of a named task.

    \b
    litebert data check reviews.csv --dev held-out.csv
    litebert data check glue --task mrpc --model models/mine
    """


@data.command("check")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--dev", multiple=True, type=click.Path(path_type=Path), help="Evaluation files, checked for overlap.")
@click.option("--column", multiple=True, metavar="ROLE=NAME", help="text=review, label=stars, ...")
@click.option("--problem", help=f"Kind of your own task, if the guess is wrong: {', '.join(get_args(Problem))}.")
@click.option("--task", help="A named task; FILE is its folder.")
@click.option("--model", help="Count pieces with its vocabulary.")
@click.option("--max-length", type=AtLeast(1), help="Pieces that fit; the task's recipe by default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    paths: tuple[Path, ...],
    dev: tuple[Path, ...],
    column: tuple[str, ...],
    problem: str | None,
    task: str | None,
    model: str | None,
    max_length: int | None,
    as_json: bool,
) -> None:
    """Say what a file of examples contains and what is wrong with it.

    The first FILE is the one to train on; the others are compared with it, as --dev is. The exit
    code is 3 if something would stop the training.

    \b
    litebert data check reviews.csv --column text=body --model models/mine
    litebert data check train.jsonl dev.jsonl test.jsonl --json
    """
    report = _report(paths, dev, column=column, problem=problem, task=task, model=model, max_length=max_length)
    if as_json:
        show_json(report, indent=2)
    else:
        show(str(report))
    stop(DamagedError.exit_code if report.has_errors else 0)


def _report(
    paths: tuple[Path, ...],
    dev: tuple[Path, ...],
    *,
    column: tuple[str, ...],
    problem: str | None,
    task: str | None,
    model: str | None,
    max_length: int | None,
) -> DataReport:
    from litebert.tasks.check import check_dataset, check_files
    from litebert.tokenizer import Tokenizer

    tokenizer = None if model is None else Tokenizer.load(vocabulary_path(model))
    length = max_length or _length_of(task or "table")
    if task is not None and task != "table":
        from litebert.tasks.registry import DATASETS, require_task

        require_task(task)
        return check_dataset(DATASETS[task], paths[0], tokenizer=tokenizer, max_length=length)
    if paths[0].is_dir():
        raise LitebertError(
            "LB-869",
            f"{paths[0]} is a folder",
            received="no --task",
            expected="a file of your own, or the name of the task whose folder it is",
            next=f"litebert data check {paths[0]} --task mrpc, or whichever task it is",
        )
    return check_files(
        paths[0], [*paths[1:], *dev], columns=column, problem=problem, tokenizer=tokenizer, max_length=length
    )


def _length_of(task: str) -> int:
    """Return the longest sequence that the recipe of a task trains on, if it has one."""
    from litebert.api.recipes import recipe_names, recipe_settings

    if task not in recipe_names("finetune"):
        return 512
    length = recipe_settings("finetune", task)["task.max_length"].value
    assert isinstance(length, int)
    return length
