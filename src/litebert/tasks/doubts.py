"""What the result of a fine-tuning is compared with, and reasons not to trust it.

A result is compared with the baseline, which are answers that ignore the text, with the
start, if its vectors answer before any training, and with chance: on few rows, a
difference between two models may be none.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from litebert.errors import format_count
from litebert.runs import AnswerRow
from litebert.tasks.finetuning import LabeledSet, measures_of
from litebert.tasks.kinds.family import Family

# Two standard errors of an accuracy. With up to 100 rows they are this large, and a set
# is too small to detect most changes.
FEW_ROWS = 0.1


def baseline(
    family: Family[Any, Any], train: Sequence[Any], held_out: Mapping[str, LabeledSet]
) -> dict[str, float]:
    """Measure answers that ignore the text, under the same names as an evaluation."""
    constant_answers = dict[str, Sequence[Any]]()
    for split, labeled_set in held_out.items():
        constant_answers[split] = family.constant(train, labeled_set.examples)
    return measures_of(family, held_out, constant_answers)


# ---- one result ----------------------------------------------------------------------


def doubts(
    key_measure: str,
    measures: Mapping[str, float],
    constant: Mapping[str, float],
    rows: Mapping[str, Sequence[AnswerRow]],
    baseline: str = "the most common label",
) -> tuple[str, ...]:
    """Return reasons not to trust a result: it does not clearly beat the baseline, or
    the answers never vary.

    `measures` are those of the model and `constant` those of the baseline, which
    `baseline` describes in words; `rows` are the answers by held-out set.
    """
    reasons = list[str]()
    if key_measure in constant and measures[key_measure] <= constant[key_measure]:
        reasons.append(
            f"{key_measure} {measures[key_measure]:.4f} is no better than always giving"
            f" {baseline} ({constant[key_measure]:.4f})"
        )
    for split, answered in rows.items():
        accuracy = f"{split}_accuracy" if len(rows) > 1 else "accuracy"
        reasons += _doubts_of_accuracy(accuracy, measures, constant, len(answered))
        reasons += _doubts_of_correlation(key_measure, measures, len(answered))
        reasons += _doubts_of_answers(split, answered)
    return tuple(reasons)


def _doubts_of_accuracy(
    name: str,
    measures: Mapping[str, float],
    constant: Mapping[str, float],
    num_rows: int,
) -> list[str]:
    """Say if an accuracy is inexact, or beats the baseline by no more than chance may."""
    if name not in measures or name not in constant or not num_rows:
        return []
    accuracy = measures[name]
    rate = accuracy
    if accuracy in (0, 1):
        # Such a rate would have no error: it is estimated by the rule of succession.
        rate = 1 / (num_rows + 2)
    two_errors = 2 * math.sqrt(rate * (1 - rate) / num_rows)
    may_be_chance = 0 < accuracy - constant[name] < two_errors
    if two_errors < FEW_ROWS and not may_be_chance:
        return []
    rows = format_count(num_rows, "row")
    return [
        f"{name} {accuracy:.4f} on {rows}, {constant[name]:.4f} without"
        f" learning: differences below {100 * two_errors:.1f} points may be chance (two"
        " standard errors)"
    ]


def _doubts_of_correlation(
    key_measure: str, measures: Mapping[str, float], num_rows: int
) -> list[str]:
    """Say if a correlation on few rows is inexact: its inverse hyperbolic tangent has a
    standard error of 1 / sqrt(n - 3) (Fisher, 1921).
    """
    correlation = measures.get(key_measure, math.nan)
    is_correlation = key_measure.endswith(("spearman", "pearson"))
    if not is_correlation or not -1 < correlation < 1:
        return []
    if num_rows <= 3:
        return [f"{key_measure} {correlation:.4f} on {num_rows} rows says nothing"]
    two_errors = 2 / math.sqrt(num_rows - 3)
    center = math.atanh(correlation)
    low = math.tanh(center - two_errors)
    high = math.tanh(center + two_errors)
    if high - low < 2 * FEW_ROWS:
        return []
    rows = format_count(num_rows, "row")
    return [
        f"{key_measure} {correlation:.4f} on {rows}: on others it may be"
        f" between {low:.2f} and {high:.2f} (two standard errors)"
    ]


def _doubts_of_answers(split: str, rows: Sequence[AnswerRow]) -> list[str]:
    """Say if no answer to a held-out set is right, or if all are the same."""
    reasons = list[str]()
    # a score has no probability, and is never quite right
    are_choices = any(row.confidence is not None for row in rows)
    if are_choices and not any(row.is_right for row in rows):
        reasons.append(f"not one of the {len(rows):,} answers to {split} is right")
    answers = {row.answer for row in rows}
    expected = {row.expected for row in rows}
    texts = {row.text for row in rows}
    # Equal texts always get equal answers, whatever their labels: there, the data are to
    # blame.
    if len(answers) == 1 and len(expected) > 1 and len(texts) > 1:
        [answer] = answers
        reasons.append(f"every answer to {split} is the same: {answer or 'none'}")
    return reasons


# ---- the last step against the start -------------------------------------------------


def has_lost_start(
    key_measure: str,
    first: Mapping[str, float],
    last: Mapping[str, float],
    constant: Mapping[str, float],
) -> bool:
    """Return whether training lost something that the start knew: then the best
    evaluation is written, the start or a later step.

    A start that is no better than the baseline knows nothing: on few rows, the
    regression may give the most common label to all of them. That may well be more
    often right than a model that has begun to tell the labels apart.
    """
    start = first[key_measure]
    knows_nothing = start <= constant.get(key_measure, -math.inf)
    return last[key_measure] < start and not knows_nothing


def doubts_of_training(
    key_measure: str,
    first: Mapping[str, float],
    last: Mapping[str, float],
    constant: Mapping[str, float],
    rows: Mapping[str, Sequence[AnswerRow]],
) -> tuple[str, ...]:
    """Say if training lost what the vectors gave before it, added nothing, or no more
    than chance may add.
    """
    before = first[key_measure]
    after = last[key_measure]
    values = f"{key_measure} {after:.4f} at the last step, {before:.4f} at the start"
    # the key measure is that of the first held-out set
    num_rows = len(next(iter(rows.values()), ()))
    if has_lost_start(key_measure, first, last, constant):
        return (
            f"training made the model worse: {values}; the model is that of the best"
            " evaluation",
        )
    if after < before:
        return (
            f"{values}; the start is no better than always giving the same answer, so"
            " the model of the last step is kept",
        )
    if after == before:
        return (
            f"training added nothing that {format_count(num_rows, 'row')} can show: {values}",
        )
    is_share = key_measure.endswith("accuracy")
    if is_share and num_rows and 0 < before < 1:
        error = 2 * math.sqrt(before * (1 - before) / num_rows)
        if after - before < error:
            return (
                f"training added no more than chance may: {values}, on {num_rows:,}"
                " rows",
            )
    return ()
