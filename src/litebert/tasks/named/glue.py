"""GLUE: ten data sets described in one table, their files from the authors or from the
Hub, and the upload.
"""

import io
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.reading.source import find_files, read_lines
from litebert.reading.tables import Dialect, scan_delimited
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.kinds.text import Scores, TextClassification, TextExample
from litebert.tasks.own.cells import number_of
from litebert.tasks.own.layouts import open_table

# The tasks
#
# Columns are found by their names in the header. In the authors' files, these are the
# columns that the official readers take by position (classifier_utils.py L87-553); in
# any other file, a missing name is an error.


@dataclass(frozen=True)
class GlueTask:
    """What is specific to the files and labels of one task.

    `labels` are in the order of the official code; without any, the answer is a score.
    `written` are the labels as spelt in the files, if that differs; fields that begin
    with `hub` hold what differs on the Hub. `header` names the columns of labeled
    files without a header line. The tasks themselves are in glue.toml.
    """

    name: str
    folder: str
    texts: tuple[str, ...]
    label: str = "label"
    labels: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    skips_broken_lines: bool = False
    splits: tuple[str, ...] = ("train", "dev", "test")
    files: tuple[str, ...] = ()
    hub_texts: tuple[str, ...] = ()
    hub_labels: tuple[str, ...] = ()
    key_measure: str = "accuracy"
    """The measure that the official code selects by (classifier_utils.py L881-949)."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """The labels as the authors' files and the leaderboard spell them."""
        return self.written or self.labels

    def patterns(self, split: str) -> tuple[str, ...]:
        """Return where the files of a split may be, the authors' before the Hub's:
        RTE/dev.tsv, dev.tsv, and so on.
        """
        if self.files:
            return self.files
        hub = split.replace("dev", "validation")
        places = (
            (self.folder, f"{split}.tsv"),
            (self.name, f"{hub}-*.parquet"),
            (self.name, f"{hub}.jsonl"),
        )
        return tuple(
            chain.from_iterable((f"{folder}/{name}", name) for folder, name in places)
        )


_TABLE = tomllib.loads(
    Path(__file__).with_name("glue.toml").read_text(encoding="utf-8")
)
GLUE_TASKS = TypeAdapter(tuple[GlueTask, ...]).validate_python(_TABLE["tasks"])

# Reading

# with a row's number; without one, rows are counted from 0
ID_COLUMNS = ("index", "id", "idx")
HIGHEST_SCORE = 5  # of STS-B; the lowest is 0
AGAIN = "get the file again, or remove this row"


def read_glue(task: GlueTask, folder: Path, split: str) -> list[TextExample]:
    """Read one split from the folder of all tasks or from that of the task; texts are
    unchanged.
    """
    if split not in task.splits:
        advice = f"litebert recipes show {'mnli' if task.name == 'ax' else task.name}"
        what = f"{task.name} has no split {split}"
        wanted = f"one of {', '.join(task.splits)}"
        raise LitebertError("LB-821", what, expected=wanted, next=advice)
    is_test = split.startswith("test")
    examples = list[TextExample]()
    for source in find_files(folder, task.patterns(split)):
        is_tsv = source.kind == ".tsv"
        texts = task.texts if is_tsv else task.hub_texts or task.texts
        label = task.label if is_tsv else "label"
        columns = texts if is_test else (*texts, label)
        # one of the authors' files: tabs between cells, and quotes are literal
        if is_tsv:
            header = () if is_test else task.header
            names = header or next(read_lines(source), (1, ""))[1].split("\t")
            rows = scan_delimited(
                source, Dialect("\t", "none"), names, num_headings=int(not header)
            )
        else:
            rows = open_table(Path(source.location)).scan()
        for number, row in rows:
            if isinstance(row, LitebertError):
                if is_tsv and task.skips_broken_lines:
                    continue
                raise row
            if not {*columns} <= row.keys():
                what = (
                    f"{source.place(number)}: these are not the columns of {task.name}"
                )
                asked = f"columns that include {', '.join(columns)}"
                advice = f"give the folder that holds {task.folder}, or its files"
                raise LitebertError(
                    "LB-822", what, received=", ".join(row), expected=asked, next=advice
                )
            for name in texts:
                if not isinstance(row[name], str):
                    what = f"{source.place(number)}: {name} is not text"
                    raise LitebertError("LB-824", what, received=row[name], next=AGAIN)
            first, *second = (str(row[name]) for name in texts)
            key = str(
                next((row[name] for name in ID_COLUMNS if name in row), len(examples))
            )
            answer = None if is_test else _label(task, row[label], is_tsv=is_tsv)
            if answer is None and not is_test:
                what = f"{source.place(number)}: not a label of {task.name}"
                spelt = task.spellings if is_tsv else task.labels
                asked = (
                    f"one of {', '.join(spelt)}"
                    if spelt
                    else f"a score from 0 to {HIGHEST_SCORE}"
                )
                raise LitebertError(
                    "LB-825", what, received=str(row[label]), expected=asked, next=AGAIN
                )
            examples.append(
                TextExample(key, first, second[0] if second else None, answer)
            )
    return examples


def _label(task: GlueTask, value: object, *, is_tsv: bool) -> int | float | None:
    """Return a score, or the index of a label: from the authors' spelling in any case,
    or the Hub's name or number.

    No other spelling is accepted in the authors' files: the files of RTE have the
    columns of WNLI, but words where WNLI has digits.
    """
    names = task.spellings if is_tsv else task.labels
    if not task.labels:
        score = number_of(value)
        return score if score is not None and 0 <= score <= HIGHEST_SCORE else None
    if isinstance(value, str):
        return names.index(value.lower()) if value.lower() in names else None
    hub_names = task.hub_labels or names
    return (
        names.index(hub_names[value])
        if isinstance(value, int) and 0 <= value < len(hub_names)
        else None
    )


# The leaderboard

SUBMISSION_FILES = tuple(
    f"{name}.tsv"
    for task in GLUE_TASKS
    for name in (("MNLI-m", "MNLI-mm") if task.name == "mnli" else (task.folder,))
)


def submission(
    task: GlueTask,
    split: str,
    examples: Sequence[TextExample],
    answers: Sequence[Scores],
) -> dict[str, str]:
    """Return the answers as a file for gluebenchmark.com, by its name."""
    suffix = (
        "-m"
        if split.endswith("_matched")
        else "-mm"
        if split.endswith("_mismatched")
        else ""
    )
    lines = ["index\tprediction\n"]
    for example, answer in zip(examples, answers, strict=True):
        score = f"{min(max(answer.values[0], 0.0), HIGHEST_SCORE):.3f}"
        lines.append(
            f"{example.id}\t{task.spellings[answer.best] if task.labels else score}\n"
        )
    return {f"{task.folder}{suffix}.tsv": "".join(lines)}


def glue_zip(files: Mapping[str, str]) -> bytes:
    """Pack the files of all tasks, by name, into the archive to upload; the leaderboard
    requires all.
    """
    if missing := [name for name in SUBMISSION_FILES if name not in files]:
        what = "the GLUE leaderboard requires all tasks"
        advice = "answer the test data of the missing ones, too"
        raise LitebertError(
            "LB-826", what, received=f"no {', '.join(missing)}", next=advice
        )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        # a fixed date: the same answers are the same bytes
        for name in SUBMISSION_FILES:
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _dataset(task: GlueTask) -> Dataset[TextExample, Scores]:
    problem = "single_label_classification" if task.labels else "regression"
    head = HeadConfig(
        kind="sequence-classification",
        labels=task.labels or ("score",),
        problem_type=problem,
        compares_texts=len(task.texts) == 2,
    )
    dev, test = (
        tuple(split for split in task.splits if split.startswith(side))
        for side in ("dev", "test")
    )
    read = partial(read_glue, task)
    write = partial(submission, task)
    family: TextClassification = head.family()
    return Dataset(
        task.name,
        family,
        read,
        task.key_measure,
        write,
        dev_splits=dev,
        test_splits=test,
    )


DATASETS = {task.name: _dataset(task) for task in GLUE_TASKS}
