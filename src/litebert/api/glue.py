"""GLUE as a function: fine-tune on every task, tabulate the results, write the submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from litebert.api.run import Run
from litebert.api.settings import Overrides, Progress, require_types
from litebert.api.training import finetune
from litebert.errors import LitebertError, no_such_name
from litebert.files import write_bytes, write_text
from litebert.reading.source import find_files
from litebert.report.published import glue_remarks, glue_table
from litebert.report.tables import Cell, Table

ARCHIVE = "glue.zip"


@dataclass(frozen=True)
class GlueRuns:
    """The runs of all tasks, a table with the paper's figures, and the archive to submit."""

    runs: dict[str, Run]
    table: Table
    remarks: tuple[str, ...]
    archive: Path | None
    exit_code: int = 0
    formats: ClassVar = Table.formats

    def __str__(self) -> str:
        """Write the table."""
        return "" if self.exit_code else str(self.table)

    def as_json(self) -> list[dict[str, Cell]]:
        """Return each row of the table by heading."""
        return self.table.as_json()

    def as_csv(self) -> str:
        """Return the table as CSV."""
        return self.table.as_csv()

    def as_markdown(self) -> str:
        """Return the table as Markdown."""
        return self.table.as_markdown()

    @property
    def notes(self) -> tuple[str, ...]:
        """How the table is to be read, and where the test answers are."""
        return (*self.remarks, *((f"test answers: {self.archive}",) if self.archive else ()))


def glue(
    *,
    model: Annotated[str | Path, "Pretrained model: a folder, or a name on the Hub."],
    data: Annotated[str | Path, "Folder with a subfolder per task."],
    tasks: Annotated[str | Sequence[str], "Some of them, such as mrpc,rte; by default all in the folder."] = (),
    seeds: Annotated[Sequence[int], "Several runs of each task, 1,2,3."] = (),
    name: Annotated[str, "Runs are NAME/TASK."] = "glue",
    runs: Annotated[str | Path, "Folder of the runs."] = "runs",
    submission: Annotated[str | Path | None, "Folder for answers to the test sets."] = None,
    best: Annotated[bool, "Submit best evaluations instead of last steps."] = False,
    settings: Overrides = (),
    quiet: Annotated[bool, "No progress on stderr."] = False,
) -> GlueRuns:
    """Fine-tune a model on the tasks of GLUE, each by its recipe, and print the table.

    Each task is a run of its own. Rerun the command to resume. All files are looked at before any training. Test
    answers average the models of all seeds.

    litebert glue --model models/mine --data glue --tasks mrpc,rte --seeds 1,2,3
    litebert glue --model models/mine --data glue --submission submission --markdown
    """
    require_types(glue, locals())
    words = [tasks] if isinstance(tasks, str) else tasks
    names = [part.strip() for word in words for part in word.split(",") if part.strip()]
    from litebert.inference.finetuned import Finetuned, ensemble_answers
    from litebert.tasks.named.glue import DATASETS, GLUE_TASKS, glue_zip

    say, folder = Progress("", "", is_quiet=quiet).say, Path(data)
    trainable = {task.name: task for task in GLUE_TASKS if "train" in task.splits}
    for each in names:
        if each not in trainable:
            what, after = "GLUE has no task of this name to train", "litebert glue ... --tasks mrpc,rte"
            raise no_such_name("LB-529", what, each, trainable, next=after)
    there = [n for n, task in trainable.items() if (folder / task.folder).is_dir() or (folder / n).is_dir()]
    chosen = list(dict.fromkeys(names)) or there
    if not chosen:
        raise LitebertError(
            "LB-530",
            f"no task of GLUE is in {folder}",
            received="no such folder" if not folder.is_dir() else "none of the tasks' folders",
            expected=f"some of {', '.join(task.folder for task in trainable.values())}",
            next=f"ls {folder}",
        )
    # the tasks to submit, each with the task whose models answer it
    answered = {task: task for task in chosen} | ({"ax": "mnli"} if "mnli" in chosen else {})
    # all files are looked at, and all test data read, before the first task is trained
    for task in chosen:
        for split in trainable[task].splits:
            if not split.startswith("test"):
                find_files(folder, trainable[task].patterns(split))
    if submission is not None:
        empty: dict[str, str] = {}
        for task in answered:
            for split in DATASETS[task].test_splits:
                DATASETS[task].read(folder, split)
                empty |= dict.fromkeys(DATASETS[task].submission(split, [], []), "")
        glue_zip(empty)

    trained: dict[str, Run] = {}
    for task in chosen:
        say(f"{task}: {Path(runs) / name / task}")
        trained[task] = run = finetune(
            task, model=model, data=data, name=f"{name}/{task}", runs=runs, seeds=seeds, settings=settings, quiet=quiet
        )
        if run.exit_code:
            return GlueRuns(trained, Table((), ()), (), None, run.exit_code)
    if submission is None:
        return GlueRuns(trained, glue_table(trained), glue_remarks(trained), None)
    files: dict[str, str] = {}
    for task, source in answered.items():
        parts = trained[source].seeds or (trained[source],)
        models = [Finetuned.open(part.folder, kept="best" if best else "last") for part in parts]
        for split in DATASETS[task].test_splits:
            say(f"{task}: answering {split}")
            examples = DATASETS[task].read(folder, split)
            answers = ensemble_answers(models, examples)
            files |= {n: str(text) for n, text in DATASETS[task].submission(split, examples, answers).items()}
    for file, text in files.items():
        write_text(Path(submission) / file, text)
    archive = Path(submission) / ARCHIVE
    write_bytes(archive, glue_zip(files))
    return GlueRuns(trained, glue_table(trained), glue_remarks(trained), archive)
