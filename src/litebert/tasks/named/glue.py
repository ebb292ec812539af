"""GLUE: ten data sets described in one table, their files from the authors or from the
Hub, and the upload.
"""

import io
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.reading.lines import read_lines
from litebert.reading.source import Source, find_files
from litebert.reading.tables import Dialect, Row, Scanned, scan_delimited
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.kinds.text import Scores, TextClassification, TextExample
from litebert.tasks.tables.cells import number_of
from litebert.tasks.tables.layouts import open_table

# ---- the tasks -----------------------------------------------------------------------
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

    def names(self, *, is_tsv: bool) -> tuple[str, ...]:
        """Return the labels as a file spells them: one of the authors, or of the Hub."""
        return self.spellings if is_tsv else self.labels

    def patterns(self, split: str) -> tuple[str, ...]:
        """Return where the files of a split may be, the authors' before the Hub's:
        RTE/dev.tsv, dev.tsv, and so on.
        """
        if self.files:
            return self.files
        authors_file = f"{split}.tsv"
        hub_split = split.replace("dev", "validation")
        patterns = [f"{self.folder}/{authors_file}", authors_file]
        for hub_file in (f"{hub_split}-*.parquet", f"{hub_split}.jsonl"):
            patterns += [f"{self.name}/{hub_file}", hub_file]
        return tuple(patterns)


_TABLE = tomllib.loads(
    Path(__file__).with_name("glue.toml").read_text(encoding="utf-8")
)
GLUE_TASKS = TypeAdapter(tuple[GlueTask, ...]).validate_python(_TABLE["tasks"])

# ---- reading -------------------------------------------------------------------------

# with a row's number; without one, rows are counted from 0
ID_COLUMNS = ("index", "id", "idx")
HIGHEST_SCORE = 5  # of STS-B; the lowest is 0
AGAIN = "get the file again, or remove this row"


def read_glue(task: GlueTask, folder: Path, split: str) -> list[TextExample]:
    """Read one split from the folder of all tasks, or from the folder of this task;
    texts are unchanged.
    """
    if split not in task.splits:
        # the diagnostics `ax` are answered by models of MNLI
        recipe = "mnli" if task.name == "ax" else task.name
        raise LitebertError(
            "LB-821",
            f"{task.name} has no split {split}",
            expected=f"one of {', '.join(task.splits)}",
            next=f"litebert recipes show {recipe}",
        )
    is_test = split.startswith("test")
    examples = list[TextExample]()
    for source in find_files(folder, task.patterns(split)):
        layout = _Layout.of(task, source, is_test=is_test)
        for number, row in layout.rows():
            if isinstance(row, LitebertError):
                if layout.is_tsv and task.skips_broken_lines:
                    continue
                raise row
            place = source.place(number)
            examples.append(layout.example(row, place, len(examples)))
    return examples


@dataclass(frozen=True)
class _Layout:
    """How a file of a task is written: as the authors did, or as the Hub does."""

    task: GlueTask
    source: Source
    is_tsv: bool  # one of the authors' files
    texts: tuple[str, ...]  # columns
    label: str | None  # the column; None: a test file without labels

    @classmethod
    def of(cls, task: GlueTask, source: Source, *, is_test: bool) -> "_Layout":
        is_tsv = source.kind == ".tsv"
        texts = task.texts
        label: str | None = task.label
        if not is_tsv:
            texts = task.hub_texts or task.texts
            label = "label"
        if is_test:
            label = None
        return cls(task, source, is_tsv, texts, label)

    def rows(self) -> Iterator[Scanned]:
        if not self.is_tsv:
            return open_table(Path(self.source.location)).scan()
        header: Sequence[str] = () if self.label is None else self.task.header
        names = header
        if not header:
            _, first_line = next(read_lines(self.source), (1, ""))
            names = first_line.split("\t")
        # tabs between cells, and quotes are literal
        dialect = Dialect("\t", "none")
        num_headings = 0 if header else 1
        return scan_delimited(self.source, dialect, names, num_headings=num_headings)

    def example(self, row: Row, place: str, number: int) -> TextExample:
        """Return a row as an example; `number` is its id if the row has none."""
        self._require_columns(row, place)
        first, *others = (str(row[name]) for name in self.texts)
        second = others[0] if others else None
        key: object = number
        for name in reversed(ID_COLUMNS):
            key = row.get(name, key)
        label = None
        if self.label is not None:
            label = self._label(row[self.label], place)
        return TextExample(str(key), first, second, label)

    def _require_columns(self, row: Row, place: str) -> None:
        """Raise for a row without the columns of the task, or with something else than
        texts in them.
        """
        columns = [*self.texts]
        if self.label is not None:
            columns.append(self.label)
        if not row.keys() >= {*columns}:
            raise LitebertError(
                "LB-822",
                f"{place}: these are not the columns of {self.task.name}",
                received=", ".join(row),
                expected=f"columns that include {', '.join(columns)}",
                next=f"give the folder that holds {self.task.folder}, or its files",
            )
        for name in self.texts:
            if not isinstance(row[name], str):
                raise LitebertError(
                    "LB-824",
                    f"{place}: {name} is not text",
                    received=row[name],
                    next=AGAIN,
                )

    def _label(self, cell: object, place: str) -> int | float:
        """Return the number of a label, or the score; raise if a cell has neither."""
        label = label_of(self.task, cell, is_tsv=self.is_tsv)
        if label is not None:
            return label
        names = self.task.names(is_tsv=self.is_tsv)
        expected = f"a score from 0 to {HIGHEST_SCORE}"
        if names:
            expected = f"one of {', '.join(names)}"
        raise LitebertError(
            "LB-825",
            f"{place}: not a label of {self.task.name}",
            received=str(cell),
            expected=expected,
            next=AGAIN,
        )


def label_of(task: GlueTask, cell: object, *, is_tsv: bool) -> int | float | None:
    """Return a score, or the index of a label: from the authors' spelling in any case,
    or the Hub's name or number; None for anything else.

    No other spelling is accepted in the authors' files: the files of RTE have the
    columns of WNLI, but words where WNLI has digits.
    """
    if not task.labels:
        score = number_of(cell)
        is_score = score is not None and 0 <= score <= HIGHEST_SCORE
        return score if is_score else None
    names = task.names(is_tsv=is_tsv)
    name = cell
    if isinstance(cell, int):
        hub_names = task.hub_labels or names
        if not 0 <= cell < len(hub_names):
            return None
        name = hub_names[cell]
    if isinstance(name, str) and name.lower() in names:
        return names.index(name.lower())
    return None


# ---- the leaderboard -----------------------------------------------------------------


def _submission_files(task: GlueTask) -> list[str]:
    if task.name == "mnli":
        return ["MNLI-m.tsv", "MNLI-mm.tsv"]
    return [f"{task.folder}.tsv"]


SUBMISSION_FILES = tuple(chain.from_iterable(map(_submission_files, GLUE_TASKS)))


def submission(
    task: GlueTask,
    split: str,
    examples: Sequence[TextExample],
    answers: Sequence[Scores],
) -> dict[str, str]:
    """Return the answers as a file for gluebenchmark.com, by its name."""
    suffix = ""
    if split.endswith("_matched"):
        suffix = "-m"
    elif split.endswith("_mismatched"):
        suffix = "-mm"
    lines = ["index\tprediction\n"]
    for example, answer in zip(examples, answers, strict=True):
        if task.labels:
            prediction = task.spellings[answer.best]
        else:
            score = min(max(answer.values[0], 0.0), HIGHEST_SCORE)
            prediction = f"{score:.3f}"
        lines.append(f"{example.id}\t{prediction}\n")
    return {f"{task.folder}{suffix}.tsv": "".join(lines)}


def glue_zip(files: Mapping[str, str]) -> bytes:
    """Pack the files of all tasks, by name, into the archive to upload; the leaderboard
    requires all.
    """
    missing = [name for name in SUBMISSION_FILES if name not in files]
    if missing:
        raise LitebertError(
            "LB-826",
            "the GLUE leaderboard requires all tasks",
            received=f"no {', '.join(missing)}",
            next="answer the test data of the missing ones, too",
        )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        # a fixed date: the same answers are the same bytes
        for name in SUBMISSION_FILES:
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _dataset(task: GlueTask) -> Dataset[TextExample, Scores]:
    """Return the data set of a task, with its head and its files for the leaderboard."""
    problem = "single_label_classification" if task.labels else "regression"
    head = HeadConfig(
        kind="sequence-classification",
        labels=task.labels or ("score",),
        problem_type=problem,
        compares_texts=len(task.texts) == 2,
    )
    family: TextClassification = head.family()
    return Dataset(
        task.name,
        family,
        partial(read_glue, task),
        task.key_measure,
        partial(submission, task),
        dev_splits=tuple(name for name in task.splits if name.startswith("dev")),
        test_splits=tuple(name for name in task.splits if name.startswith("test")),
    )


DATASETS = {task.name: _dataset(task) for task in GLUE_TASKS}
