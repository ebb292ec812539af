"""litebert glue: every GLUE task that is there, fine-tuned, in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import click

from litebert.cli.formats import Format, printed, with_formats
from litebert.errors import LitebertError, did_you_mean

ARCHIVE = "glue.zip"


@click.command()
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--model", required=True, help="Pretrained model: a folder, or a name on the Hub.")
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Folder of all tasks.")
@click.option("--tasks", default="", help="Some of them, mrpc,rte; all that are there by default.")
@click.option("--seeds", default="", help="Several runs of each task, 1,2,3.")
@click.option("--name", default="glue", show_default=True, help="Runs are NAME/TASK.")
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path))
@click.option("--submission", type=click.Path(path_type=Path), help="Folder for test answers.")
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

    Each task is a run of its own. The same command again goes on where it stopped. Test answers
    are those of all seeds together.

    \b
    litebert glue --model models/mine --data glue --tasks mrpc,rte --seeds 1,2,3
    litebert glue --model models/mine --data glue --submission submission --markdown
    """
    from litebert.cli.finetune import report_seeds, resolve_finetuning, seed_numbers, train_seeds
    from litebert.report.glue import glue_table, remarks
    from litebert.report.seeds import read_run

    chosen, numbers = _tasks(data, tasks), seed_numbers(seeds)
    _require_files(chosen, data)
    if submission is not None:
        _require_tests(chosen, data)
    flags: dict[str, object] = {"model.start": model, "data.folder": str(data)}
    resolved = {task: resolve_finetuning(task, None, flags, words) for task in chosen}
    trained = {}
    for task, settings in resolved.items():
        folder = runs / name / task
        click.echo(f"{task}: {folder}", err=True)
        trained[task] = train_seeds(settings, folder, seeds=numbers, is_quiet=quiet)
        report_seeds(folder, trained[task])
    found = {task: read_run(runs / name / task) for task in chosen}
    click.echo(printed([glue_table(found)], written_as))
    for remark in remarks(found):
        click.echo(remark, err=True)
    if submission is not None:
        _submit(trained, data, submission, kept="best" if best else "last")


def _tasks(data: Path, asked: str) -> list[str]:
    """Name the tasks that were asked for, or those that the folder has."""
    from litebert.tasks.named.glue_tasks import GLUE_TASKS

    learnt = [task for task in GLUE_TASKS if "train" in task.splits]
    known = [task.name for task in learnt]
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise LitebertError(
                "LB-529",
                "GLUE has no task of this name to train",
                received=name,
                expected=did_you_mean(name, known),
                next="litebert glue ... --tasks mrpc,rte",
            )
    there = [
        task.name for task in learnt if (data / task.folder).is_dir() or (data / task.name).is_dir()
    ]
    if names or there:
        return list(dict.fromkeys(names)) or there
    raise LitebertError(
        "LB-530",
        f"no task of GLUE is in {data}",
        received="no such folder" if not data.is_dir() else "none of the tasks' folders",
        expected=f"some of {', '.join(task.folder for task in learnt)}",
        next=f"ls {data}",
    )


def _require_files(tasks: Sequence[str], data: Path) -> None:
    """Refuse before the first task is trained what a later one lacks."""
    from litebert.reading.find import find_files
    from litebert.tasks.named.glue_tasks import GLUE_TASKS

    for task in GLUE_TASKS:
        for split in task.splits if task.name in tasks else ():
            if not split.startswith("test"):
                find_files(data, task.patterns(split))


def _require_tests(tasks: Sequence[str], data: Path) -> None:
    """Refuse before training what could not be submitted after it."""
    from litebert.tasks.named.glue import DATASETS, glue_zip

    files: dict[str, str] = {}
    for task in _answered(tasks):
        dataset = DATASETS[task]
        assert dataset.submission is not None, "GLUE has a leaderboard"
        for split in dataset.test_splits:
            dataset.read(data, split)
            files |= dict.fromkeys(dataset.submission(split, [], []), "")
    glue_zip(files)


def _submit(
    trained: Mapping[str, Sequence[Path]],
    data: Path,
    output: Path,
    *,
    kept: Literal["last", "best"],
) -> None:
    """Answer the test data of every task, the diagnostic one with the models of MNLI."""
    from litebert.files import write_bytes, write_text
    from litebert.inference.finetuned import Finetuned, ensemble_answers
    from litebert.tasks.named.glue import DATASETS, glue_zip

    files: dict[str, str] = {}
    for task, learnt in _answered(list(trained)).items():
        models = [Finetuned.open(run, kept=kept) for run in trained[learnt]]
        dataset = DATASETS[task]
        assert dataset.submission is not None, "GLUE has a leaderboard"
        for split in dataset.test_splits:
            examples = dataset.read(data, split)
            answers = ensemble_answers(models, examples)
            files |= {n: str(t) for n, t in dataset.submission(split, examples, answers).items()}
    for name, text in files.items():
        write_text(output / name, text)
    write_bytes(output / ARCHIVE, glue_zip(files))
    click.echo(f"test answers: {output / ARCHIVE}", err=True)


def _answered(tasks: Sequence[str]) -> dict[str, str]:
    """Name the tasks whose tests are answered, each with the task that was trained for it."""
    return {task: task for task in tasks} | ({"ax": "mnli"} if "mnli" in tasks else {})
