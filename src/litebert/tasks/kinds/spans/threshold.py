"""The threshold for "no answer": the official rule with its quirks, and a clean one.

The official evaluation (squad_utils.py L1693) tunes the threshold on the answers that it measures,
does not answer the very question that set it (tuned with `>`, applied with `<`), and takes a null
score above 1.0 as "no answer", tuned or not. `tuned_threshold` does none of this; tune it on
questions held out of training, and pass it to the family as `null_threshold`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from litebert.metrics import best_threshold, raw_scores, require_some, squad2_measures, threshold_measures
from litebert.tasks.kinds.spans.decode import SpanAnswer, kept_text
from litebert.tasks.kinds.spans.example import SpanExample

Examples = Sequence[SpanExample]
Answers = Sequence[SpanAnswer]


def squad2_scores(examples: Examples, answers: Answers, *, threshold: float | None) -> dict[str, float]:
    """Measure with a given threshold, or (None) exactly as the official evaluation does."""
    wanted, nulls = gold(examples), null_scores(examples, answers)
    is_official = threshold is None
    tuned = official_threshold(examples, answers) if threshold is None else threshold
    return {
        **squad2_measures(wanted, answered(examples, answers, tuned), nulls if is_official else None),
        **threshold_measures(wanted, answered(examples, answers, None), nulls),
        "threshold": tuned,
    }


def given_texts(examples: Examples, answers: Answers) -> list[str]:
    """Return the answers to submit, as in the official files.

    If no threshold was set and the right answers are known, it is tuned on these.
    """
    questions, measured = labelled(examples, answers)
    if not questions or measured[0].null_score is None or measured[0].threshold is not None:
        return [answer.text for answer in answers]
    threshold = official_threshold(questions, measured)
    return [kept_text(answer, threshold) for answer in answers]


def official_threshold(examples: Examples, answers: Answers) -> float:
    """Return the threshold that the official evaluation tunes on the answers it measures."""
    wanted, found = gold(examples), answered(examples, answers, None)
    _, f1 = raw_scores(wanted, found)
    return best_threshold(f1, found, null_scores(examples, answers), wanted)[1]


def tuned_threshold(examples: Examples, answers: Answers) -> float:
    """Return the threshold with the highest F1, midway between two null scores.

    Among equally good thresholds, it is the lowest.

    Raises:
        LitebertError: LB-430, there are no answers.
    """
    require_some(len(answers))
    wanted = gold(examples)
    _, f1 = raw_scores(wanted, answered(examples, answers, None))
    gains = np.array([f1[key] - float(not wanted[key]) for key in wanted])
    nulls = np.array(list(null_scores(examples, answers).values()))
    values, places = np.unique(nulls, return_inverse=True)
    gained = np.concatenate([[0.0], np.cumsum(np.bincount(places, weights=gains))])
    between = np.concatenate([[values[0]], (values[1:] + values[:-1]) / 2, [values[-1] + 1.0]])
    return float(between[gained.argmax()])


def labelled(examples: Examples, answers: Answers) -> tuple[list[SpanExample], list[SpanAnswer]]:
    """Omit questions whose answer is unknown."""
    pairs = zip(examples, answers, strict=True)
    kept = [pair for pair in pairs if pair[0].answers is not None]
    return [example for example, _ in kept], [answer for _, answer in kept]


def gold(examples: Examples) -> dict[str, list[str]]:
    """Return the right answers by question."""
    return {example.id: [one.text for one in example.answers or ()] for example in examples}


def answered(examples: Examples, answers: Answers, threshold: float | None) -> dict[str, str]:
    """Return the answers by question, "" for those whose null score reaches the threshold."""
    pairs = zip(examples, answers, strict=True)
    return {example.id: kept_text(answer, threshold) for example, answer in pairs}


def null_scores(examples: Examples, answers: Answers) -> dict[str, float]:
    """Return the null scores by question."""
    pairs = zip(examples, answers, strict=True)
    return {example.id: answer.null_score for example, answer in pairs if answer.null_score is not None}
