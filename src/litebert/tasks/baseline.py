"""The baseline of every result: what always giving the commonest label would get."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from litebert.tasks.dataset import Dataset
from litebert.tasks.finetuning import LabelledSet
from litebert.tasks.kinds.family import Answer, AnswerRow, Example


def baseline(
    dataset: Dataset[Example, Answer], training: Sequence[Example], held_out: Mapping[str, LabelledSet[Example]]
) -> dict[str, float]:
    """Measure answers that ignore the text, under the names of an evaluation."""
    family, measured = dataset.family, dict[str, float]()
    for split, labelled in held_out.items():
        answers = family.constant(training, labelled.examples)
        prefix = f"{split}_" if len(held_out) > 1 else ""
        values = family.measures(labelled.examples, answers)
        measured |= {f"{prefix}{name}": value for name, value in values.items()}
    return measured


def doubts(
    key_measure: str,
    measures: Mapping[str, float],
    constant: Mapping[str, float],
    rows: Mapping[str, Sequence[AnswerRow]],
) -> tuple[str, ...]:
    """Return reasons not to trust a result: it does not clearly beat the baseline, or never varies.

    >>> doubts("accuracy", {"accuracy": 0.74}, {"accuracy": 0.74}, {})
    ('accuracy 0.7400 is no better than always giving the commonest label (0.7400)',)
    """
    found = []
    if key_measure in constant and measures[key_measure] <= constant[key_measure]:
        found.append(
            f"{key_measure} {measures[key_measure]:.4f} is no better than always giving the "
            f"commonest label ({constant[key_measure]:.4f})"
        )
    for split, answered in rows.items():
        name = f"{split}_accuracy" if len(rows) > 1 else "accuracy"
        accuracy, commonest = measures.get(name), constant.get(name)
        if accuracy is not None and commonest is not None and answered:
            error = 2 * math.sqrt(accuracy * (1 - accuracy) / len(answered))
            if error >= FEW_ROWS or 0 < accuracy - commonest < error:
                found.append(
                    f"{name} {accuracy:.4f} on {len(answered):,} rows, {commonest:.4f} without learning: differences "
                    f"below {100 * error:.1f} points may be chance (two standard errors)"
                )
        answers, expected = ({getattr(row, name) for row in answered} for name in _COMPARED)
        if len(answers) == 1 and len(expected) > 1:
            (answer,) = answers
            found.append(f"every answer to {split} is the same: {answer or 'none'}")
    return tuple(found)


_COMPARED = ("answer", "expected")
FEW_ROWS = 0.1
"""Two standard errors of an accuracy from which a set is too small to tell most changes: up to 100 rows."""
