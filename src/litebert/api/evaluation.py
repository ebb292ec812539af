"""Evaluation as a function: of a fine-tuned model, an ensemble, or a pretrained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.api.held_out import is_pretrained, measure_pretraining
from litebert.api.progress import Progress
from litebert.api.settings import require_models, require_types
from litebert.errors import LitebertError, no_such_name
from litebert.inference.finetuned import Finetuned, Kept, data_of, measured, with_clean_threshold, with_patience
from litebert.report.table import Frame, frame
from litebert.tasks.finetuning import doubts
from litebert.tasks.named.squad import score_predictions

if TYPE_CHECKING:
    from litebert.config import Precision


@dataclass(frozen=True)
class Evaluation:
    """Measures by split and name, and the precision that they were computed in.

    `baseline` has the same measures for always giving `constant`, the commonest label or what is closest to one in this
    kind of task; `doubts` are reasons not to trust a result. Both are empty for a pretrained model.
    """

    measures: dict[str, dict[str, float]]
    precision: str = ""
    baseline: dict[str, dict[str, float]] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    constant: str = "the commonest label"

    def to_pandas(self) -> Frame:
        """Return a row per measure: a DataFrame where pandas is installed, else a Table."""
        return frame(
            [
                {"split": split, "measure": name, "value": value}
                for split, values in self.measures.items()
                for name, value in values.items()
            ]
        )

    def __str__(self) -> str:
        """Write a line per measure, with its value for always giving the constant answer."""
        lines = []
        for split, values in self.measures.items():
            constant, what = self.baseline.get(split, {}), self.constant.removeprefix("the ")
            for name, value in values.items():
                beside = f"  ({what} {constant[name]:.4f})" if name in constant else ""
                lines.append(f"{split:<16} {name:<24} {value:.4f}{beside}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def evaluate(
    models: str | Path | Sequence[str | Path],
    *,
    data: str | Path | None = None,
    split: str | None = None,
    task: str | None = None,
    columns: Sequence[str] = (),
    best: bool = False,
    clean: bool = False,
    precision: Precision | None = None,
    depth: int | None = None,
    patience: int | None = None,
    quiet: bool = False,
) -> Evaluation:
    """Measure a run or a model folder; the answers of several fine-tuned runs are averaged.

    A pretrained model is measured by masked LM and sentence order, on the texts `data` or on what
    its run held out. `precision` defaults to the one that the run was trained in; `columns` name
    the roles of your own file's columns; `task` is for a model folder without its run; `best` takes
    the best evaluation's model; `clean` tunes SQuAD 2.0's threshold on training articles;
    `patience` is that of `Model.classify`.

    Raises:
        LitebertError: The models, the data and the task do not fit together.
    """
    require_types(evaluate, locals())
    chosen = require_models(models)
    if len(chosen) == 1 and task is None and is_pretrained(chosen[0]):
        texts = [] if data is None else [str(data)]
        values, used = measure_pretraining(chosen[0], texts, column=_text_column(columns), precision=precision)
        return Evaluation({"texts" if texts else "held out": values}, used)
    kept: Kept = "best" if best else "last"
    with Progress("examples", "evaluating", is_quiet=quiet) as progress:
        opened = [
            Finetuned.open(
                path, kept=kept, task=task, columns=columns, precision=precision, depth=depth, progress=progress.advance
            )
            for path in chosen
        ]
        folder = Path(data) if data is not None else data_of(chosen[0])
        if clean:
            opened = with_clean_threshold(opened, folder)
        if patience is not None:
            opened = with_patience(opened, patience)
        return _of_splits(opened, folder, [split] if split else opened[0].dataset.dev_splits)


def _of_splits(opened: Sequence[Finetuned], data: Path, splits: Sequence[str]) -> Evaluation:
    """Measure fine-tuned models, and the baseline beside them, on splits of a data set."""
    family, key = opened[0].dataset.family, opened[0].dataset.key_measure
    measures, constant, doubtful = {}, {}, list[str]()
    for name in splits:
        values, examples, answers = measured(opened, data, name)
        always = family.constant(examples, examples)
        measures[name], constant[name] = values, {} if always is None else family.measures(examples, always)
        rows = {name: family.rows(examples, answers)}
        doubtful += doubts(key, values, constant[name], rows, family.baseline)
    return Evaluation(measures, opened[0].precision, constant, tuple(doubtful), family.baseline)


def evaluate_zero_shot(
    models: str | Path | Sequence[str | Path],
    *,
    on: str,
    data: str | Path | None,
    limit: int | None = None,
    precision: Precision | None = None,
) -> Evaluation:
    """Measure what a pretrained model knows without fine-tuning.

    `on` is `blimp` (minimal pairs by pseudo-log-likelihood), `sts` (sentence pairs with scores) or
    `retrieval` (questions and their paragraphs, in SQuAD's layout); `limit` takes the first so many
    rows, of each paradigm for BLiMP.

    Raises:
        LitebertError: LB-994, there is no such measure; LB-995, there are several models; LB-996,
            there is no data; or the model or the data cannot be used for it.
    """
    from litebert.inference import Model
    from litebert.study.zero_shot import MEASURES

    next_step = "litebert evaluate models/mine --on sts --data STS-B/dev.tsv"
    chosen = require_models(models)
    if on not in MEASURES:
        raise no_such_name("LB-994", "there is no measure of this name", on, MEASURES, next=next_step)
    if len(chosen) != 1:
        raise LitebertError(
            "LB-995",
            "zero-shot measures are taken of one model",
            received=f"{len(chosen)} models",
            expected="one run or model folder",
            next=next_step,
        )
    if data is None:
        raise LitebertError(
            "LB-996",
            "a zero-shot measure needs the data to measure on",
            received="no --data",
            expected="--data FILE: BLiMP's pairs, scored sentence pairs, or SQuAD's questions",
            next=next_step,
        )
    used = precision or "fp32"
    opened = Model.load(chosen[0], precision=used)
    return Evaluation({on: MEASURES[on](opened, Path(data), limit=limit)}, used)


def evaluate_predictions(
    predictions: str | Path, data: str | Path | None, *, null_odds: str | Path | None = None
) -> Evaluation:
    """Score a prediction file of SQuAD against the data set."""
    if data is None:
        raise LitebertError(
            "LB-526",
            "a prediction file is scored against a data set",
            received="no --data",
            expected="--data dev-v1.1.json, or another file with the answers",
            next="litebert evaluate --predictions FILE --data dev-v1.1.json",
        )
    odds = None if null_odds is None else Path(null_odds)
    return Evaluation({"predictions": score_predictions(Path(data), Path(predictions), null_odds=odds)})


def _text_column(columns: Sequence[str]) -> str:
    """Return the text column of a file of texts."""
    names = dict(choice.split("=", 1) for choice in columns if "=" in choice)
    return names.get("text", "text")
