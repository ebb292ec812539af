"""GLUE as a function: fine-tune on every task, tabulate the results, write the submission."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.api.progress import Progress
from litebert.api.run import Run
from litebert.api.settings import Overrides
from litebert.api.training import finetune
from litebert.errors import LitebertError, no_such_name
from litebert.files import write_bytes, write_text
from litebert.inference.finetuned import Finetuned, Kept, ensemble_answers
from litebert.reading.source import find_files
from litebert.report.published import glue_remarks, glue_table
from litebert.report.tables import Table
from litebert.tasks.named.glue import DATASETS, GLUE_TASKS, glue_zip

ARCHIVE = "glue.zip"


@dataclass(frozen=True)
class GlueRuns:
    """The runs of all tasks, a table with the paper's figures, and the archive to submit."""

    runs: dict[str, Run]
    table: Table
    remarks: tuple[str, ...]
    archive: Path | None
    exit_code: int = 0

    def __str__(self) -> str:
        """Write the table."""
        return self.table.as_text()


def glue(
    *,
    model: str | Path,
    data: str | Path,
    tasks: Sequence[str] = (),
    seeds: Sequence[int] = (),
    name: str = "glue",
    runs: str | Path = "runs",
    submission: str | Path | None = None,
    best: bool = False,
    settings: Overrides = (),
    quiet: bool = False,
) -> GlueRuns:
    """Fine-tune a model on the tasks of GLUE, each by its recipe; call it again to resume.

    Each task is a run of its own, `runs`/`name`/TASK; `tasks` is all that are in `data` by
    default. `submission` is a folder for the answers to the test data, those of all seeds averaged.

    Raises:
        LitebertError: A task or its files are missing; this is checked before any training.
    """
    say, folder = Progress("", "", is_quiet=quiet).say, Path(data)
    chosen = _tasks(folder, tasks)
    _require_files(chosen, folder)
    if submission is not None:
        _require_tests(chosen, folder)
    trained: dict[str, Run] = {}
    for task in chosen:
        say(f"{task}: {Path(runs) / name / task}")
        trained[task] = finetune(
            task, model=model, data=data, name=f"{name}/{task}", runs=runs, seeds=seeds, settings=settings, quiet=quiet
        )
        if trained[task].exit_code:
            return GlueRuns(trained, Table((), ()), (), None, trained[task].exit_code)
    archive = None
    if submission is not None:
        archive = _submit(trained, folder, Path(submission), "best" if best else "last", say)
    return GlueRuns(trained, glue_table(trained), glue_remarks(trained), archive)


def _tasks(data: Path, names: Sequence[str]) -> list[str]:
    """Name the tasks that were chosen, or those that the folder has."""
    trainable = [task for task in GLUE_TASKS if "train" in task.splits]
    known = [task.name for task in trainable]
    for name in names:
        if name not in known:
            raise no_such_name(
                "LB-529",
                "GLUE has no task of this name to train",
                name,
                known,
                next="litebert glue ... --tasks mrpc,rte",
            )
    there = [task.name for task in trainable if (data / task.folder).is_dir() or (data / task.name).is_dir()]
    if names or there:
        return list(dict.fromkeys(names)) or there
    raise LitebertError(
        "LB-530",
        f"no task of GLUE is in {data}",
        received="no such folder" if not data.is_dir() else "none of the tasks' folders",
        expected=f"some of {', '.join(task.folder for task in trainable)}",
        next=f"ls {data}",
    )


def _require_files(tasks: Sequence[str], data: Path) -> None:
    """Check the data of all tasks before the first one is trained."""
    for task in GLUE_TASKS:
        for split in task.splits if task.name in tasks else ():
            if not split.startswith("test"):
                find_files(data, task.patterns(split))


def _require_tests(tasks: Sequence[str], data: Path) -> None:
    """Read all test data before training, so that a submission cannot fail after it."""
    files: dict[str, str] = {}
    for task in _answered(tasks):
        dataset = DATASETS[task]
        for split in dataset.test_splits:
            dataset.read(data, split)
            files |= dict.fromkeys(dataset.submission(split, [], []), "")
    glue_zip(files)


def _submit(trained: Mapping[str, Run], data: Path, output: Path, kept: Kept, say: Callable[[str], None]) -> Path:
    """Answer the test data of every task, the diagnostic one with the models of MNLI."""
    files: dict[str, str] = {}
    for task, source in _answered(list(trained)).items():
        run = trained[source]
        folders = [each.folder for each in run.seeds or (run,)]
        models = [Finetuned.open(folder, kept=kept) for folder in folders]
        dataset = DATASETS[task]
        for split in dataset.test_splits:
            say(f"{task}: answering {split}")
            examples = dataset.read(data, split)
            answers = ensemble_answers(models, examples)
            files |= {n: str(t) for n, t in dataset.submission(split, examples, answers).items()}
    for name, text in files.items():
        write_text(output / name, text)
    write_bytes(output / ARCHIVE, glue_zip(files))
    return output / ARCHIVE


def _answered(tasks: Sequence[str]) -> dict[str, str]:
    """Name the tasks to submit, each with the task whose models answer it."""
    return {task: task for task in tasks} | ({"ax": "mnli"} if "mnli" in tasks else {})
