"""GLUE: fine-tune a model on all its tasks, and make the archive for its leaderboard."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from litebert.api.predictions import answer_splits
from litebert.api.runs import Run
from litebert.api.settings import Overrides, Quiet, Runs, checked
from litebert.api.training import finetune
from litebert.errors import LitebertError, no_such_name, say
from litebert.files import write_bytes, write_text
from litebert.reading.source import find_files
from litebert.report.tables import Table


@dataclass(frozen=True)
class GlueRuns(Table):
    """The table of all tasks with the paper's figures, their runs, and the archive to
    submit.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    archive: Path | None = None


@checked
def glue(
    *,
    model: Annotated[
        str | Path,
        "Pretrained model: a folder, or a name on the Hub; litebert is the packaged"
        " one.",
    ],
    data: Annotated[str | Path, "Folder with a subfolder per task."],
    tasks: Annotated[
        str | Sequence[str], "Tasks, such as mrpc,rte; by default, all in the folder."
    ] = (),
    seeds: Annotated[Sequence[int], "Several runs of each task: 1,2,3."] = (),
    name: Annotated[str, "Runs are NAME/TASK."] = "glue",
    runs: Runs = "runs",
    submission: Annotated[
        str | Path | None, "Folder for the answers to the test sets."
    ] = None,
    settings: Overrides = (),
    quiet: Quiet = False,
) -> GlueRuns:
    """Fine-tune a model on the tasks of GLUE, each with its recipe, and print the
    table.

    Each task is a run; rerun the command to resume. All files are checked first. Test
    answers average all seeds.

    litebert glue --model models/mine --data glue --submission submission --markdown
    litebert glue --model models/mine --data glue --seeds 1,2,3 --submission out
    """
    from litebert.report.published import glue_table

    folder = Path(data)
    chosen = _choose_tasks(tasks, folder)
    if submission is not None:
        _require_test_data(chosen, folder)

    trained = dict[str, Run]()
    for task in chosen:
        if not quiet:
            say(f"{task}: {Path(runs) / name / task}")
        run = finetune(
            task,
            model=model,
            data=data,
            name=f"{name}/{task}",
            runs=runs,
            seeds=seeds,
            settings=settings,
            quiet=quiet,
        )
        trained[task] = run
        if run.exit_code:
            return GlueRuns((), (), exit_code=run.exit_code, runs=trained)

    table = glue_table(trained)
    results = GlueRuns(
        table.headings, table.rows, decimals=2, notes=table.notes, runs=trained
    )
    if submission is None:
        return results
    archive = _write_submission(trained, folder, Path(submission))
    notes = (*results.notes, f"test answers: {archive}")
    return replace(results, archive=archive, notes=notes)


def _choose_tasks(tasks: str | Sequence[str], folder: Path) -> list[str]:
    """Return the tasks that are named, or all in a folder; raise unless the files of
    each are there.
    """
    from litebert.tasks.named.glue import GLUE_TASKS

    trainable = {task.name: task for task in GLUE_TASKS if "train" in task.splits}
    words = tasks if isinstance(tasks, str) else ",".join(tasks)
    named = list(filter(None, map(str.strip, words.split(","))))
    for name in named:
        if name not in trainable:
            raise no_such_name(
                "LB-529",
                "GLUE has no task of this name to train",
                name,
                trainable,
                next="litebert glue ... --tasks mrpc,rte",
            )
    present = list[str]()
    for name, task in trainable.items():
        if (folder / task.folder).is_dir() or (folder / name).is_dir():
            present.append(name)
    chosen = list(dict.fromkeys(named)) or present
    if not chosen:
        folders = ", ".join(task.folder for task in trainable.values())
        raise LitebertError(
            "LB-530",
            f"{folder} has no task of GLUE",
            expected=f"some of {folders}",
            next=f"ls {folder}",
        )
    # A missing file stops the command before the first task is trained.
    for name in chosen:
        for split in trainable[name].splits:
            if not split.startswith("test"):
                find_files(folder, trainable[name].patterns(split))
    return chosen


def _tasks_to_submit(trained: Iterable[str]) -> dict[str, str]:
    """Return the tasks whose test data are answered, each with the task that its models
    were trained on: the diagnostics `ax` have no training data of their own.
    """
    tasks = {task: task for task in trained}
    if "mnli" in tasks:
        tasks["ax"] = "mnli"
    return tasks


def _require_test_data(trained: Sequence[str], folder: Path) -> None:
    """Read all test data, so that an error stops the command before the first task is
    trained.
    """
    from litebert.tasks.named.glue import DATASETS, glue_zip

    files = dict[str, str]()
    for task in _tasks_to_submit(trained):
        dataset = DATASETS[task]
        for split in dataset.test_splits:
            dataset.read(folder, split)
            files |= dict.fromkeys(dataset.submission(split, [], []), "")
    glue_zip(files)  # raises if the leaderboard needs other files


def _write_submission(trained: Mapping[str, Run], folder: Path, output: Path) -> Path:
    """Answer all test data, with all seeds together, and return the archive that the
    leaderboard takes.
    """
    from litebert.inference.finetuned import Finetuned
    from litebert.tasks.named.glue import DATASETS, glue_zip

    files = dict[str, str]()
    for task, source in _tasks_to_submit(trained).items():
        models = [Finetuned.open(part.folder) for part in trained[source].parts]
        dataset = DATASETS[task]
        splits = dataset.test_splits
        files |= answer_splits(models, dataset, folder, splits).files
    for name, text in files.items():
        write_text(output / name, text)
    archive = output / "glue.zip"
    write_bytes(archive, glue_zip(files))
    return archive
