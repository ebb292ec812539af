"""GLUE as data sets: what is measured, and the files for the leaderboard."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.tasks.dataset import Dataset
from litebert.tasks.kinds.classification import Scores, TextClassification, TextExample
from litebert.tasks.named.glue_files import HIGHEST_SCORE, read_glue
from litebert.tasks.named.glue_tasks import GLUE_TASKS, GlueTask

KEY_MEASURES = {"cola": "matthews", "stsb": "pearson"}
"""The measure that the official code selects by (classifier_utils.py L881-949), if not accuracy."""

SUBMISSION_FILES = tuple(
    f"{name}.tsv" for task in GLUE_TASKS for name in (("MNLI-m", "MNLI-mm") if task.name == "mnli" else (task.folder,))
)


def submission(
    task: GlueTask, split: str, examples: Sequence[TextExample], answers: Sequence[Scores]
) -> dict[str, str]:
    """Return the answers as a file for gluebenchmark.com, by its name."""
    matching = {"_matched": "-m", "_mismatched": "-mm"}
    suffix = next((short for long, short in matching.items() if split.endswith(long)), "")
    rows = (f"{example.id}\t{_prediction(task, answer)}\n" for example, answer in zip(examples, answers, strict=True))
    return {f"{task.folder}{suffix}.tsv": "index\tprediction\n" + "".join(rows)}


def glue_zip(files: Mapping[str, str]) -> bytes:
    """Pack the files of all tasks, by name, into the archive to upload.

    Raises:
        LitebertError: LB-826, a task has no file; the leaderboard requires all.
    """
    if missing := [name for name in SUBMISSION_FILES if name not in files]:
        raise LitebertError(
            "LB-826",
            "the GLUE leaderboard requires all tasks together",
            received=f"no {', '.join(missing)}",
            expected=", ".join(SUBMISSION_FILES),
            next="answer the test data of the missing tasks, too",
        )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in SUBMISSION_FILES:  # a fixed date: the same answers are the same bytes
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _prediction(task: GlueTask, answer: Scores) -> str:
    if task.labels:
        return task.spellings[answer.best]
    return f"{min(max(answer.values[0], 0.0), HIGHEST_SCORE):.3f}"


def _dataset(task: GlueTask) -> Dataset[TextExample, Scores]:
    head = HeadConfig(
        kind="sequence-classification",
        labels=task.labels or ("score",),
        problem_type="single_label_classification" if task.labels else "regression",
    )
    return Dataset(
        name=task.name,
        family=TextClassification(head),
        read=partial(read_glue, task),
        key_measure=KEY_MEASURES.get(task.name, "accuracy"),
        dev_splits=tuple(split for split in task.splits if split.startswith("dev")),
        test_splits=tuple(split for split in task.splits if split.startswith("test")),
        submission=partial(submission, task),
    )


DATASETS = {task.name: _dataset(task) for task in GLUE_TASKS}
