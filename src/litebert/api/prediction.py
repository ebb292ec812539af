"""Prediction as a function: the answers of fine-tuned models to a whole split or file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.api.progress import Progress
from litebert.api.settings import require_models, require_types
from litebert.errors import LitebertError
from litebert.files import require_new, write_text
from litebert.inference.finetuned import Finetuned, Kept, data_of, ensemble_answers
from litebert.report.table import Frame, frame
from litebert.tasks.kinds.family import AnswerRow
from litebert.tasks.registry import OWN

if TYPE_CHECKING:
    from litebert.config import Precision


@dataclass(frozen=True)
class Predictions:
    """Answers by split, in the order of the examples, and the files that a leaderboard wants."""

    rows: dict[str, tuple[AnswerRow, ...]]
    files: dict[str, str]
    split_of: dict[str, str]
    precision: str = ""

    def write(self, folder: str | Path, *, force: bool = False) -> list[Path]:
        """Write the files to a new folder and return their paths; with `force`, over answers that are there."""
        require_new(Path(folder), force=force, own=self.files)
        for name, text in self.files.items():
            write_text(Path(folder) / name, text)
        return [Path(folder) / name for name in self.files]

    def to_pandas(self) -> Frame:
        """Return a row per answer: a DataFrame where pandas is installed, else a Table."""
        return frame([{"split": split, **asdict(row)} for split, rows in self.rows.items() for row in rows])

    def __repr__(self) -> str:
        """Count the answers of each split."""
        counts = ", ".join(f"{split}: {len(rows):,} answers" for split, rows in self.rows.items())
        return f"Predictions({counts})"

    def _repr_html_(self) -> str:
        shown = [row for rows in self.rows.values() for row in rows][:20]
        cells = "".join(
            f"<tr><td>{escape(row.id)}</td><td>{escape(row.text[:80])}</td><td>{escape(row.answer)}</td></tr>"
            for row in shown
        )
        return f"<p>{escape(repr(self))}</p><table>{cells}</table>"


def predict(
    models: str | Path | Sequence[str | Path],
    *,
    data: str | Path | None = None,
    split: str | None = None,
    task: str | None = None,
    columns: Sequence[str] = (),
    best: bool = False,
    precision: Precision | None = None,
    quiet: bool = False,
) -> Predictions:
    """Answer every example of a split, or of your own file; several runs are averaged.

    Raises:
        LitebertError: LB-527, LB-923, there is nothing to answer; or the models, the data and the
            task do not fit together.
    """
    require_types(predict, locals())
    chosen = require_models(models)
    kept: Kept = "best" if best else "last"
    with Progress("examples", "predicting", is_quiet=quiet) as progress:
        opened = [
            Finetuned.open(path, kept=kept, task=task, columns=columns, precision=precision, progress=progress.advance)
            for path in chosen
        ]
        dataset = opened[0].dataset
        folder = _require_data(data, opened[0], chosen[0])
        rows: dict[str, tuple[AnswerRow, ...]] = {}
        files: dict[str, str] = {}
        split_of: dict[str, str] = {}
        for name in [split] if split else dataset.test_splits:
            examples = dataset.read(folder, name)
            answers = ensemble_answers(opened, examples)
            rows[name] = tuple(dataset.family.rows(examples, answers))
            made = dataset.submission(name, examples, answers)
            files |= made
            split_of |= dict.fromkeys(made, name)
    if not files:
        raise LitebertError(
            "LB-527",
            f"{dataset.name} has no split without labels",
            received="no --split",
            expected=f"one of {', '.join(dataset.dev_splits)}",
            next=f"litebert predict ... --split {dataset.dev_splits[0]}",
        )
    return Predictions(rows, files, split_of, opened[0].precision)


def _require_data(data: str | Path | None, model: Finetuned, path: str) -> Path:
    """Return the data to answer: never the user's own training file, unless it is named."""
    if data is not None:
        return Path(data)
    if model.dataset.name == OWN:
        raise LitebertError(
            "LB-923",
            "there are no examples to answer",
            received="no --data, and a model trained on a file of your own",
            expected="the file to answer",
            next=f"litebert predict {path} --data FILE --output FOLDER",
        )
    return data_of(path)
