"""SQuAD 2.0: questions without an answer, and the null score above which none is given.

Results equal those of evaluate-v2.0.py digit for digit, in percent. A null score is any number that
is larger if a question seems unanswerable.
"""

from __future__ import annotations

from collections.abc import Mapping

from litebert.metrics.some import require_some
from litebert.metrics.spans import Gold, best, exact_match, normalized_answer, word_f1

ScoreById = dict[str, float]
OFFICIAL_THRESHOLD = 1.0
"""evaluate-v2.0.py's --na-prob-thresh: a question with a larger null score counts as unanswered."""


def squad2_measures(
    gold: Gold,
    predictions: Mapping[str, str],
    null_scores: Mapping[str, float] | None = None,
    *,
    threshold: float = OFFICIAL_THRESHOLD,
) -> dict[str, float]:
    """Measure answers; an empty one means "cannot be answered", a missing one is not counted.

    Returns `exact` and `f1` over all questions, over those with an answer (`has_answer_`) and
    without one (`no_answer_`). With null scores, questions above the threshold are unanswered.

    Raises:
        LitebertError: LB-430, there are no answers.

    >>> squad2_measures({"a": ["Nile"], "b": []}, {"a": "Nile", "b": "Rhine"})["exact"]
    50.0
    """
    kept = list(raw_scores(gold, predictions))
    if null_scores is not None:
        kept = [with_threshold(scores, null_scores, gold, threshold) for scores in kept]
    questions = list(kept[0])
    require_some(len(questions))
    parts = {
        "": questions,
        "has_answer_": [key for key in questions if gold[key]],
        "no_answer_": [key for key in questions if not gold[key]],
    }
    measures: dict[str, float] = {}
    for prefix, keys in parts.items():
        measures |= _means(prefix, kept, keys) if keys else {}
    return measures


def threshold_measures(
    gold: Gold, predictions: Mapping[str, str], null_scores: Mapping[str, float]
) -> dict[str, float]:
    """Return the results of the best thresholds, found on these very questions.

    These are `best_exact`, `best_f1` and their thresholds; and, if some questions have an answer,
    the average precision of answering the surest first (`exact_`, `f1_average_precision`).
    """
    measures: dict[str, float] = {}
    for name, scores in zip(("exact", "f1"), raw_scores(gold, predictions), strict=True):
        highest, where = best_threshold(scores, predictions, null_scores, gold)
        measures |= {f"best_{name}": highest, f"best_{name}_threshold": where}
        if any(gold.values()):
            precision = average_precision(scores, null_scores, gold)
            measures[f"{name}_average_precision"] = precision
    return measures


def raw_scores(gold: Gold, predictions: Mapping[str, str]) -> tuple[ScoreById, ScoreById]:
    """Return exact match and F1 of every question that has a prediction, before any threshold."""
    exact, f1 = {}, {}
    for key, answers in gold.items():
        if key in predictions:
            wanted = [answer for answer in answers if normalized_answer(answer)] or [""]
            exact[key] = best(exact_match, wanted, predictions[key])
            f1[key] = best(word_f1, wanted, predictions[key])
    return exact, f1


def with_threshold(
    scores: Mapping[str, float], null_scores: Mapping[str, float], gold: Gold, threshold: float
) -> ScoreById:
    """Return the scores when questions above the threshold are left unanswered."""
    return {key: float(not gold[key]) if null_scores[key] > threshold else score for key, score in scores.items()}


def best_threshold(
    scores: Mapping[str, float], predictions: Mapping[str, str], null_scores: Mapping[str, float], gold: Gold
) -> tuple[float, float]:
    """Return the best mean score of any threshold, and the null score of the last one answered.

    As in the official script, the threshold of answering nothing is 0.0 for any scores, and a
    threshold may fall between two questions with the same score.

    Raises:
        LitebertError: LB-430, there are no answers.
    """
    require_some(len(scores))
    score = highest = float(sum(not answers for answers in gold.values()))
    threshold = 0.0
    for key in sorted(null_scores, key=null_scores.__getitem__):
        if key not in scores:
            continue
        score += scores[key] if gold[key] else -bool(predictions[key])
        if score > highest:
            highest, threshold = score, null_scores[key]
    return 100 * highest / len(scores), threshold


def average_precision(scores: Mapping[str, float], null_scores: Mapping[str, float], gold: Gold) -> float:
    """Return the area under the precision-recall curve of answering the surest questions first."""
    ids = [key for key in sorted(null_scores, key=null_scores.__getitem__) if key in scores]
    num_answerable = sum(bool(answers) for answers in gold.values())
    hits = area = recall = 0.0
    for place, key in enumerate(ids):
        if gold[key]:
            hits += scores[key]
        is_last_of_score = place + 1 == len(ids) or null_scores[key] != null_scores[ids[place + 1]]
        if is_last_of_score:
            area += hits / (place + 1) * (hits / num_answerable - recall)
            recall = hits / num_answerable
    return 100 * area


def _means(prefix: str, kept: list[ScoreById], chosen: list[str]) -> dict[str, float]:
    exact, f1 = (100.0 * sum(scores[key] for key in chosen) / len(chosen) for scores in kept)
    return {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": len(chosen)}
