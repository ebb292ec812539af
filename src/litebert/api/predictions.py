"""Predict: answers to whole splits, or to files of one's own, as files to submit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Required

from typing_extensions import TypedDict

from litebert.api.evaluation import Activations, Columns, Models, TaskName, open_models
from litebert.api.frames import TablePath, as_file
from litebert.api.settings import Quiet, checked, paths, progress
from litebert.config import OWN_FILES, DeviceName
from litebert.errors import LitebertError, format_count
from litebert.files import by_force, require_new, staged_folder, write_text
from litebert.tasks.tables.columns import column_words

# whatever needs torch is imported where it is used: `litebert predict --help` loads none
if TYPE_CHECKING:
    from litebert.inference.finetuned import Finetuned
    from litebert.runs import AnswerRow
    from litebert.tasks.kinds.family import Dataset

MAX_BLANK_SHOWN = 10  # rows without an answer that a note lists


class PredictionFile(TypedDict):
    file: str
    split: str
    examples: int


@dataclass(frozen=True)
class Predictions:
    """Answers by split, in the order of the examples, and the files to submit to a
    leaderboard, by name.
    """

    rows: "dict[str, tuple[AnswerRow, ...]]"
    files: dict[str, str]
    split_of: dict[str, str]
    folder: Path = Path()

    def as_json(self) -> list[PredictionFile]:
        files = list[PredictionFile]()
        for name, split in self.split_of.items():
            path = str(self.folder / name)
            num_examples = len(self.rows[split])
            files.append({"file": path, "split": split, "examples": num_examples})
        return files

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the rows without an answer."""
        notes = list[str]()
        for split, rows in self.rows.items():
            blank = [row.id for row in rows if row.is_blank]
            if blank:
                ids = ", ".join(blank[:MAX_BLANK_SHOWN])
                more = ", …" if len(blank) > MAX_BLANK_SHOWN else ""
                number = format_count(len(blank), "row")
                notes.append(
                    f"{split}: {number} without a text or an answer: {ids}{more}"
                )
        return tuple(notes)

    def _count_answers(self, split: str) -> str:
        number = sum(not row.is_blank for row in self.rows[split])
        return format_count(number, "answer")

    def __str__(self) -> str:
        lines = list[str]()
        for file in self.as_json():
            split = file["split"]
            lines.append(f"{file['file']}  {self._count_answers(split)} ({split})")
        return "\n".join(lines)

    def __repr__(self) -> str:
        splits = [f"{split}: {self._count_answers(split)}" for split in self.rows]
        return f"Predictions({', '.join(splits)})"


@checked
def predict(
    models: Models,
    *,
    data: Annotated[TablePath | None, "Folder or file of examples."] = None,
    split: Annotated[
        str | None, "Split to answer; by default, the task's test data."
    ] = None,
    task: TaskName = None,
    columns: Columns = (),
    device: DeviceName = "auto",
    precision: Activations = None,
    output: Annotated[str | Path | None, "Folder to write.", Required] = None,
    force: Annotated[bool, "Replace existing answers."] = False,
    quiet: Quiet = False,
) -> Predictions:
    """Answer every example of a split, or of your own file, in the format of a
    leaderboard.

    Several runs are averaged. The answers are written to the output.

    In Python, they are also in `rows`, `output` may be left out, and `data` may be a
    DataFrame.

    litebert predict runs/mrpc --data glue --output submission
    litebert predict runs/seed-1 runs/seed-2 --data squad --split dev --output answers
    """
    chosen = paths(models)
    if not chosen:
        raise LitebertError("LB-534", "no model was given", next="litebert runs list")
    if output is not None:
        _require_folder_to_write(Path(output), force=force)
    with (
        as_file(data) as file,
        progress("examples predicted", is_quiet=quiet) as advance,
    ):
        opened = open_models(
            chosen,
            task=task,
            columns=column_words(columns),
            device=device,
            precision=precision,
            advance=advance,
            is_quiet=quiet,
        )
        dataset = opened[0].dataset
        folder = _examples_to_answer(chosen[0], dataset.name, file)
        splits = dataset.test_splits if split is None else [split]
        predictions = answer_splits(opened, dataset, folder, splits)
    if not predictions.files:
        raise LitebertError(
            "LB-527",
            f"{dataset.name} has no split without labels",
            expected=f"one of {', '.join(dataset.dev_splits)}",
            next=f"add --split {dataset.dev_splits[0]}",
        )
    if output is None:
        return predictions
    _write_files(predictions.files, Path(output), force=force)
    return replace(predictions, folder=Path(output))


# of files that hold one table, not a folder of answers
TABLE_SUFFIXES = (".csv", ".json", ".jsonl", ".tsv", ".xlsx")


def _require_folder_to_write(folder: Path, *, force: bool) -> None:
    """Refuse an output before the work begins; whether litebert wrote an old folder is
    known later, with the names of the files.
    """
    if folder.suffix in TABLE_SUFFIXES and not folder.exists():
        raise LitebertError(
            "LB-547",
            "predict writes a folder with a file for each split",
            received=folder,
            expected="the name of a folder",
            next=f"--output {quote(folder.stem)}; litebert classify, tag, answer and"
            " choose write one table",
        )
    if not force:
        require_new(folder, if_exists="offer force")
    elif folder.is_file():  # --force replaces a folder, never a file in its place
        require_new(folder)


def _write_files(files: Mapping[str, str], folder: Path, *, force: bool) -> None:
    """Write files by name into a folder, all of them or none."""
    if_exists = by_force(force)
    require_new(folder, if_exists=if_exists, known_files=files)
    with staged_folder(folder, if_exists=if_exists, known_files=files) as staged:
        for name, text in files.items():
            write_text(staged / name, text)


def answer_splits(
    models: "Sequence[Finetuned]",
    dataset: "Dataset[Any, Any]",
    data: Path,
    splits: Sequence[str],
) -> Predictions:
    """Answer splits of a data set, as files for its leaderboard."""
    from litebert.inference.finetuned import ensemble_answers

    predictions = Predictions({}, {}, {})
    for split in splits:
        examples = dataset.read(data, split)
        answers = ensemble_answers(models, examples)
        predictions.rows[split] = tuple(dataset.family.rows(examples, answers))
        for name, text in dataset.submission(split, examples, answers).items():
            predictions.files[name] = text
            predictions.split_of[name] = split
    return predictions


def _examples_to_answer(run: str, task: str, file: str | None) -> Path:
    """Return the file or folder with the examples; never the file that a run was
    trained on, unless it is given.
    """
    from litebert.inference.finetuned import data_of

    if file is not None:
        return Path(file)
    if task != OWN_FILES:
        return data_of(run)
    raise LitebertError(
        "LB-923",
        "there are no examples to answer: give a file with --data",
        next=f"litebert predict {run} --data FILE --output FOLDER",
    )
