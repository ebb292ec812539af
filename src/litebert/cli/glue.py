"""litebert glue: fine-tune on every GLUE task in a folder, and print one table."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.loading import seed_numbers
from litebert.cli.output import Format, note, printed, show, stop, with_formats


@click.command()
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--model", required=True, help="Pretrained model: a folder, or a name on the Hub.")
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Folder with a subfolder per task.")
@click.option("--tasks", default="", help="Some of them, such as mrpc,rte; by default all in the folder.")
@click.option("--seeds", default="", help="Several runs of each task, 1,2,3.")
@click.option("--name", default="glue", show_default=True, help="Runs are NAME/TASK.")
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path))
@click.option("--submission", type=click.Path(path_type=Path), help="Folder for answers to the test sets.")
@click.option("--best", is_flag=True, help="Submit best evaluations instead of last steps.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@with_formats
def glue(
    words: tuple[str, ...],
    model: str,
    data: Path,
    tasks: str,
    seeds: str,
    name: str,
    runs: Path,
    submission: Path | None,
    best: bool,
    quiet: bool,
    written_as: Format,
) -> None:
    """Fine-tune a model on the tasks of GLUE, each by its recipe, and print the table.

    Each task is a run of its own. Rerun the command to resume. Test answers average the models of
    all seeds.

    \b
    litebert glue --model models/mine --data glue --tasks mrpc,rte --seeds 1,2,3
    litebert glue --model models/mine --data glue --submission submission --markdown
    """
    from litebert.api.glue_runs import glue as fine_tune

    found = fine_tune(
        model=model,
        data=data,
        tasks=[task.strip() for task in tasks.split(",") if task.strip()],
        seeds=seed_numbers(seeds),
        name=name,
        runs=runs,
        submission=submission,
        best=best,
        settings=words,
        quiet=quiet,
    )
    stop(found.exit_code)
    show(printed([found.table], written_as))
    for remark in found.remarks:
        note(remark)
    if found.archive is not None:
        note(f"test answers: {found.archive}")
