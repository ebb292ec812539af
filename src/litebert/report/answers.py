"""Sections on the answers of a fine-tuned model: which labels it confuses, how well its
confidence fits, and its worst errors.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.stats import rankdata

from litebert.report.figures import Bin, Figure, reliability_figure
from litebert.report.page import Section
from litebert.report.tables import Cell, Table
from litebert.runs import AnswerRow, RunFolder

MOST_LABELS = 12  # with more, the commonest confusions replace the matrix
MOST_PAIRS = 20
MOST_ERRORS = 20
LONGEST_ID = 40
LONGEST_ANSWER = 120
LONGEST_TEXT = 280
NUM_BINS = 15  # Guo et al. 2017, "On Calibration of Modern Neural Networks", section 5

Answers: TypeAlias = Mapping[str, Sequence[AnswerRow]]
"""The labeled answers of a run by held-out set."""


def answer_sections(run: RunFolder, answers: Answers) -> list[Section]:
    """Return the sections on confusion, calibration and the worst errors."""
    labels = _labels_of(run)
    answered = dict[str, list[AnswerRow]]()
    for split, rows in answers.items():
        answered[split] = [row for row in rows if not row.is_blank]
    with_one_label = _with_one_label(answered, labels)
    calibrated = with_one_label if labels else answered
    return [
        _confusion(with_one_label, labels),
        _calibration(run, calibrated),
        _worst_errors(answers),
    ]


def _labels_of(run: RunFolder) -> list[str]:
    """Return the labels in the config.json of the run's model, if it has some."""
    names = run.config.get("id2label")
    if not isinstance(names, dict):
        return []
    return [str(name) for name in names.values()]


def _with_one_label(answers: Answers, labels: Sequence[str]) -> Answers:
    """Return the sets in which each answer is one of several labels: not text, not a
    number, not a set of labels.
    """
    if len(labels) < 2:
        return {}
    known = set(labels)
    chosen = dict[str, Sequence[AnswerRow]]()
    for split, rows in answers.items():
        if all(row.expected in known and row.answer in known for row in rows):
            chosen[split] = rows
    return chosen


# ---- confusion -----------------------------------------------------------------------


class Confusion(NamedTuple):
    """How often a label was answered where another one was expected: a row of the
    table of a task with many labels.
    """

    expected: str
    answered: str
    times: int


def _confusion(answers: Answers, labels: Sequence[str]) -> Section:
    tables = list[Table]()
    for split, rows in answers.items():
        # how often each pair (expected label, answered label) occurs
        counts = Counter((str(row.expected), row.answer) for row in rows)
        if len(labels) > MOST_LABELS:
            tables.append(_commonest_confusions(split, counts))
        else:
            title = f"{split}, {len(rows):,} examples"
            tables.append(_confusion_matrix(title, counts, labels))
    words = list[str]()
    if answers:
        words = ["The answers of the last step, with a row for each correct label."]
    return Section("Confusion", words, tables=tables)


def _confusion_matrix(
    title: str, counts: Mapping[tuple[str, str], int], labels: Sequence[str]
) -> Table:
    """Return a row for each label that was expected, a column for each answer."""
    rows = list[list[Cell]]()
    for expected in labels:
        answered = [counts[expected, label] for label in labels]
        right = "none"
        if any(answered):
            right = f"{counts[expected, expected] / sum(answered):.1%}"
        rows.append([expected, *answered, right])
    columns = [f"answered {label}" for label in labels]
    return Table(("Expected", *columns, "Right"), rows, title, style="shaded")


def _commonest_confusions(split: str, counts: Counter[tuple[str, str]]) -> Table:
    """Return the wrong answers that were given most often, as a row each."""
    confusions = list[Confusion]()
    for (expected, answered), times in counts.most_common():
        if answered != expected:
            confusions.append(Confusion(expected, answered, times))
    shown = confusions[:MOST_PAIRS]
    return Table(
        headings=("Expected", "Answered", "Times"),
        rows=shown,
        title=(
            f"{split}: the {len(shown)} most common of {len(confusions):,} confusions"
        ),
    )


# ---- calibration ---------------------------------------------------------------------


def _calibration(run: RunFolder, answers: Answers) -> Section:
    """Return the expected calibration error of each set whose answers all have a
    probability.
    """
    words = list[str]()
    figures = list[Figure]()
    for split, rows in answers.items():
        confidences = [row.confidence for row in rows if row.confidence is not None]
        if not rows or len(confidences) < len(rows):
            continue
        accuracies = [float(row.is_right) for row in rows]
        bins = calibration_bins(confidences, accuracies)
        error = calibration_error(bins)
        words.append(
            f"On {split} it is {error:.4f}: the last step is"
            f" {np.mean(confidences):.1%} sure on average and"
            f" {np.mean(accuracies):.1%} right."
        )
        figures.append(reliability_figure(f"Reliability on {split}", bins))
    if not words:
        return Section("Calibration")
    meaning = (
        "Of the answers given with 80% confidence, 80% should be right. The expected"
        " calibration error is how far the two are apart on average: 0 is perfect."
    )
    result = run.outcome
    if result is not None and result.calibration is not None:
        words.append(
            "The logits were divided by a temperature, which changes no answer:"
            f" {result.calibration}. The figure shows the probabilities after that."
        )
    return Section("Calibration", [meaning, *words], figures)


def calibration_bins(
    confidences: Sequence[float], accuracies: Sequence[float]
) -> list[Bin]:
    """Sort answers into bins of equal width by confidence; empty bins are left out.

    A bin includes its upper edge and not its lower one (Guo et al. 2017, section 3).

    >>> calibration_bins([0.6, 0.8, 0.82, 1.0], [1, 1, 0, 1])
    [Bin(confidence=0.6, accuracy=1.0, size=1),
     Bin(confidence=0.8, accuracy=1.0, size=1),
     Bin(confidence=0.82, accuracy=0.0, size=1),
     Bin(confidence=1.0, accuracy=1.0, size=1)]
    """
    confidence = np.array(confidences)
    accuracy = np.array(accuracies)
    bin_of_answer = np.ceil(confidence * NUM_BINS)
    bins = list[Bin]()
    for number in np.unique(bin_of_answer):
        is_inside = bin_of_answer == number
        mean_confidence = float(confidence[is_inside].mean())
        mean_accuracy = float(accuracy[is_inside].mean())
        bins.append(Bin(mean_confidence, mean_accuracy, int(is_inside.sum())))
    return bins


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean distance between confidence and
    accuracy, weighted by the number of answers.
    """
    total = sum(bin_.size for bin_ in bins)
    distances = [bin_.size * abs(bin_.confidence - bin_.accuracy) for bin_ in bins]
    return sum(distances) / total


# ---- the worst errors ----------------------------------------------------------------


class WrongAnswer(NamedTuple):
    """A row of a table of errors: texts that are short enough for it."""

    id: str
    measure: str  # how confident the answer was, or how far off
    expected: str
    answered: str
    text: str

    @classmethod
    def of(cls, row: AnswerRow, measure: str) -> "WrongAnswer":
        return cls(
            id=shorten(row.id, LONGEST_ID),
            measure=measure,
            expected=shorten(row.expected or "", LONGEST_ANSWER) or "(none)",
            answered=shorten(row.answer, LONGEST_ANSWER) or "(none)",
            text=shorten(row.text, LONGEST_TEXT),
        )


def _worst_errors(answers: Answers) -> Section:
    """Return the section on the worst answers of each set; of cosines, whose order alone
    is judged, on those whose ranks are farthest off.
    """
    tables = list[Table]()
    words = list[str]()
    for split, rows in answers.items():
        if rows and all(row.score is None for row in rows):
            ranked = [row for row in rows if not row.is_blank]
            tables.append(_rank_table(split, ranked))
        elif all(row.is_right for row in rows):
            words.append(f"All {len(rows):,} answers on {split} are right.")
        else:
            tables.append(_error_table(split, rows))
    if tables:
        words.append(
            "The errors of the last step: the most confident, or the farthest off, come"
            " first."
        )
    return Section("Worst errors", words, tables=tables)


def _error_table(split: str, rows: Sequence[AnswerRow]) -> Table:
    """List the answers that are wrong with the most confidence."""
    errors = [row for row in rows if not row.is_right]
    errors.sort(key=_badness)
    worst = list[WrongAnswer]()
    for row in errors[:MOST_ERRORS]:
        confidence = "unknown"
        if row.confidence is not None:
            confidence = f"{row.confidence:.1%}"
        worst.append(WrongAnswer.of(row, confidence))
    return Table(
        headings=("Id", "Sure", "Expected", "Answered", "Text"),
        rows=worst,
        title=(
            f"{split}: the worst {len(worst)} of {len(errors):,} errors in"
            f" {len(rows):,}"
        ),
        style="texts",
    )


def _badness(row: AnswerRow) -> tuple[float, str]:
    """Return how wrong, times how confident (1 if unknown): sorts the worst first."""
    confidence = 1.0 if row.confidence is None else row.confidence
    error = 1 - (row.score or 0.0)
    return -error * confidence, row.id


def _rank_table(split: str, rows: Sequence[AnswerRow]) -> Table:
    """List the answers whose rank is farthest from the rank of what was expected.

    Cosines have another scale than the scores of pairs: only their order is judged.
    """
    expected = rankdata([float(row.expected or 0) for row in rows])  # (rows,)
    answered = rankdata([float(row.answer or 0) for row in rows])
    distances = np.abs(expected - answered)
    farthest = list[WrongAnswer]()
    for number in np.argsort(-distances, kind="stable")[:MOST_ERRORS]:
        ranks = f"{expected[number]:g}, {answered[number]:g}"
        farthest.append(WrongAnswer.of(rows[number], ranks))
    return Table(
        headings=(
            "Id",
            "Ranks, expected and answered",
            "Expected",
            "Answered",
            "Text",
        ),
        rows=farthest,
        title=(
            f"{split}: the {len(farthest)} of {len(rows):,} farthest from their place;"
            " rank 1 is the lowest"
        ),
        style="texts",
    )


def shorten(text: str, most: int) -> str:
    """Return a text on one line, with unprintable characters replaced, and cut if it is
    too long.

    >>> shorten("one\\n two\\x00 three", 9)
    'one two\\ufffd …'
    """
    line = " ".join(text.split())
    for letter in set(line):
        if not letter.isprintable():
            line = line.replace(letter, "\ufffd")
    return line if len(line) <= most else f"{line[:most]}…"
