"""Calibration: whether answers are right as often as their confidence says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from litebert.metrics import Calibration, calibration
from litebert.report.figure import draw_reliability
from litebert.report.finetuning.confusion import are_labels
from litebert.report.markup import Html, details, figure, figures, joined, paragraph, section, table
from litebert.runs.answers import Answered


def sections(answers: Mapping[str, Sequence[Answered]], labels: Sequence[str]) -> list[Html]:
    """Return the calibration of each held-out set with one answer and a confidence for each row."""
    measured = {split: calibration_of(rows) for split, rows in answers.items() if _fits(rows, labels)}
    if not measured:
        return []
    words = (
        "Of the answers given with 80% confidence, 80% should be right. The expected calibration "
        "error is how far the two are apart on average: 0 is perfect."
    )
    return [
        section(
            "Calibration",
            paragraph(words),
            *(paragraph(_summary(*each)) for each in measured.items()),
            figures(_figure(split, each) for split, each in measured.items()),
            details("The bins in numbers", joined(_bins(*each) for each in measured.items())),
        )
    ]


def calibration_of(rows: Iterable[Answered]) -> Calibration:
    """Measure how far the confidence of answers is from how often they are right."""
    known = [(row.confidence, row.is_right) for row in rows if row.confidence is not None]
    # The answer is the first of two columns, so a label of 0 means that it is right.
    probabilities = np.array([(confidence, 0.0) for confidence, _ in known])
    return calibration(np.array([0 if is_right else 1 for _, is_right in known]), probabilities)


def _fits(rows: Sequence[Answered], labels: Sequence[str]) -> bool:
    """Tell whether every row has a confidence and one answer: no set of labels, no tags."""
    is_known = all(row.confidence is not None for row in rows)
    return is_known and (not labels or are_labels(rows, labels))


def _summary(split: str, measured: Calibration) -> str:
    total = sum(part.count for part in measured.bins)
    confidence = sum(part.count * part.confidence for part in measured.bins) / total
    accuracy = sum(part.count * part.accuracy for part in measured.bins) / total
    return (
        f"On {split} it is {measured.error:.4f}: the last step is {confidence:.1%} sure on average "
        f"and {accuracy:.1%} right."
    )


def _figure(split: str, measured: Calibration) -> Html:
    title = f"Reliability on {split}"
    points = "; ".join(f"{part.confidence:.0%} sure, {part.accuracy:.0%} right" for part in measured.bins)
    drawing = draw_reliability(title, f"{title}: {points}.", measured)
    return figure(title, drawing, "Bars below the line: more confident than right.")


def _bins(split: str, measured: Calibration) -> Html:
    cells = (
        (f"{part.low:.1%} to {part.high:.1%}", f"{part.count:,}", f"{part.confidence:.1%}", f"{part.accuracy:.1%}")
        for part in measured.bins
    )
    headings = ("Confidence", "Answers", "Mean confidence", "Right")
    return table(f"Bins of {split} that have answers", headings, cells, kind="numbers")
