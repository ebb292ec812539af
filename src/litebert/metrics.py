"""The standard measures, by their usual definitions and names; scikit-learn's and scipy's where these are exact.

Measures of answers equal the official scripts (evaluate-v1.1.py, evaluate-v2.0.py) digit for digit, in percent; those
of entities count as conlleval and seqeval do. Undefined values are 0. Without examples they raise LB-430.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError

MARKED_FROM = 0.5
"""In multi-label classification, a label is given at this probability or above."""


def require_some(number: int) -> None:
    """Refuse to measure nothing."""
    if not number:
        raise LitebertError(
            "LB-430",
            "there is nothing to measure: not one labelled example",
            next="check whether the file to evaluate on is empty",
        )


# Labels and numbers.


def classification_measures(labels: NDArray[np.int64], probabilities: NDArray[np.floating]) -> dict[str, float]:
    """Compare labels (n,) with probabilities (n, L); the likeliest label is the answer.

    Returns `accuracy` and `matthews`; for two labels also `f1` of label 1 (GLUE), for more `macro_f1`, the mean over
    the labels that occur or are answered.

    >>> classification_measures(np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    {'accuracy': 0.5, 'f1': 0.0, 'matthews': 0.0}
    """
    from sklearn import metrics

    require_some(len(labels))
    found, name, average = probabilities.argmax(axis=1), "macro_f1", "macro"
    if probabilities.shape[1] == 2:
        name, average = "f1", "binary"
    has_spread = len(np.unique(labels)) > 1 and len(np.unique(found)) > 1  # else the correlation is 0 / 0
    return {
        "accuracy": float(metrics.accuracy_score(labels, found)),
        name: float(metrics.f1_score(labels, found, average=average, zero_division=0.0)),
        "matthews": float(metrics.matthews_corrcoef(labels, found)) if has_spread else 0.0,
    }


def multi_label_measures(marked: NDArray[np.int64], probabilities: NDArray[np.floating]) -> dict[str, float]:
    """Compare marks of 0 or 1 (n, L) with probabilities (n, L).

    Returns `micro_f1` over all marks, `macro_f1`, the mean over labels, and `exact_match`, the share of rows in which
    every mark is right.

    >>> multi_label_measures(np.array([[1, 0], [1, 1]]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    {'micro_f1': 0.8, 'macro_f1': 0.5, 'exact_match': 0.5}
    """
    from sklearn import metrics

    require_some(len(marked))
    found = (probabilities >= MARKED_FROM).astype(np.int64)  # (n, labels), each label by itself
    measures = {
        f"{average}_f1": float(metrics.f1_score(marked, found, average=average, zero_division=0.0))
        for average in ("micro", "macro")
    }
    return measures | {"exact_match": float((marked == found).all(axis=1).mean())}


def regression_measures(wanted: NDArray[np.floating], values: NDArray[np.floating]) -> dict[str, float]:
    """Compare n right scores with n answers, both of shape (n, 1) or (n,).

    Returns `pearson`, `spearman` (ties share their mean rank) and `mse`; if one side never varies, correlations are 0.

    >>> regression_measures(np.array([1.0, 2.0, 2.0]), np.array([2.0, 4.0, 3.0]))["mse"]
    2.0
    """
    from scipy import stats

    require_some(wanted.size)
    first, second = wanted.astype(np.float64).ravel(), values.astype(np.float64).ravel()
    has_spread = np.ptp(first) > 0 and np.ptp(second) > 0
    return {
        "pearson": float(stats.pearsonr(first, second).statistic) if has_spread else 0.0,
        "spearman": float(stats.spearmanr(first, second).statistic) if has_spread else 0.0,
        "mse": float(np.square(first - second).mean()),
    }


# Calibration: are 80 % of the answers with a confidence of 80 % right?

NUM_BINS = 15
"""The number of bins in Guo et al. 2017, "On Calibration of Modern Neural Networks", section 5."""


@dataclass(frozen=True)
class ReliabilityBin:
    """The answers whose confidence is above `low` and at most `high`."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """The expected calibration error (0 is perfect), and the bins that have answers."""

    error: float
    bins: tuple[ReliabilityBin, ...]


def calibration(labels: NDArray[np.int64], probabilities: NDArray[np.floating]) -> Calibration:
    """Compare the confidence of answers with how often they are right, in bins of equal width.

    `labels` has shape (n,), `probabilities` (n, labels). The error is the mean distance between confidence and
    accuracy, weighted by the number of answers in each bin.

    >>> calibration(np.array([0, 1]), np.array([[0.9, 0.1], [0.9, 0.1]])).error
    0.4
    """
    require_some(len(labels))
    confidence = probabilities.max(axis=1).astype(np.float64)  # (n,)
    is_right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, NUM_BINS + 1)
    places, bins = np.searchsorted(edges[1:-1], confidence), []  # a bin has its upper edge, not its lower one
    for place in np.unique(places):
        low, high, chosen = float(edges[place]), float(edges[place + 1]), places == place
        means = float(confidence[chosen].mean()), float(is_right[chosen].mean())
        bins.append(ReliabilityBin(low, high, int(chosen.sum()), *means))
    error = sum(part.count * abs(part.confidence - part.accuracy) for part in bins)
    return Calibration(error / len(labels), tuple(bins))


@dataclass(frozen=True)
class Spread:
    """Median, mean and sample standard deviation of `number` values, such as a measure over several seeds."""

    median: float
    mean: float
    spread: float
    number: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise values; the spread of a single one is 0.

        >>> Spread.of([1.0, 2.0, 6.0])
        Spread(median=2.0, mean=3.0, spread=2.64..., number=3)
        """
        return cls(median(values), mean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


# Tags such as B-PER, I-PER and O.


def tagging_measures(wanted: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compare tags, one list per sentence.

    `precision`, `recall` and `f1` count entities whose kind and both ends are right; `accuracy` counts tags.

    >>> tagging_measures([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]])["f1"]
    0.0
    """
    tags = [pair for rows in zip(wanted, found, strict=True) for pair in zip(*rows, strict=True)]
    require_some(len(tags))
    expected, given = (
        {(number, *entity) for number, row in enumerate(rows) for entity in entities(row)} for rows in (wanted, found)
    )
    hits = len(expected & given)  # an entity is (sentence, kind, first tag, end): all of it must be right
    return {
        "precision": hits / max(len(given), 1),
        "recall": hits / max(len(expected), 1),
        "f1": 2 * hits / max(len(given) + len(expected), 1),
        "accuracy": sum(tag == other for tag, other in tags) / len(tags),
    }


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return kind, first tag and end (exclusive) of each entity of a sentence.

    I- begins an entity if none of its kind is open, so IOB1 and broken sequences are read, too; anything else is
    outside.

    >>> entities(["B-PER", "I-PER", "B-PER", "I-LOC", "O"])
    [('PER', 0, 2), ('PER', 2, 3), ('LOC', 3, 4)]
    """
    closed: list[tuple[str, int, int]] = []
    kind, start = "", 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, own = tag.partition("-")
        if kind and not (prefix == "I" and own == kind):  # anything but its own I- ends the open entity
            closed.append((kind, start, place))
            kind = ""
        if prefix in ("B", "I") and not kind:
            kind, start = own, place
    return closed


# Answers found in texts.

Gold = Mapping[str, Sequence[str]]
"""The right answers of each question, by its id; none if it cannot be answered."""
ScoreById = dict[str, float]
OFFICIAL_THRESHOLD = 1.0
"""evaluate-v2.0.py's --na-prob-thresh: a question with a larger null score counts as unanswered."""

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_answer(text: str) -> str:
    """Return an answer in lower case without punctuation, English articles and extra space.

    >>> normalized_answer("The  Anglo-Saxons' (an army)!")
    'anglosaxons army'
    """
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def exact_match(wanted: str, found: str) -> float:
    """Return 1 if both answers are equal after normalisation, else 0.

    >>> exact_match("the Nile", "Nile.")
    1.0
    """
    return float(normalized_answer(wanted) == normalized_answer(found))


def word_f1(wanted: str, found: str, *, of_nothing: float = 1.0) -> float:
    """Return the F1 of the words of two answers; `of_nothing` if neither has any, which version 1.1 counts as 0.

    >>> word_f1("the river Nile", "Nile")
    0.6666666666666666
    """
    one, other = normalized_answer(wanted).split(), normalized_answer(found).split()
    if not one and not other:
        return of_nothing
    num_shared = sum((Counter(one) & Counter(other)).values())  # a word counts as often as both have it
    if not num_shared:
        return 0.0
    precision, recall = num_shared / len(other), num_shared / len(one)
    return 2 * precision * recall / (precision + recall)


def best(score: Callable[[str, str], float], wanted: Sequence[str], found: str) -> float:
    """Return the highest score against any right answer; 0 if there is none."""
    return max((score(answer, found) for answer in wanted), default=0.0)


def squad1_measures(gold: Gold, predictions: Mapping[str, str]) -> dict[str, float]:
    """Return `exact` and `f1` over all questions; one without a prediction counts as wrong.

    >>> squad1_measures({"q": ["the Nile", "river Nile"]}, {"q": "Nile"})
    {'exact': 100.0, 'f1': 100.0, 'total': 1}
    """
    require_some(len(gold))
    exact = f1 = 0.0
    for key, wanted in gold.items():
        if key in predictions:
            exact += best(exact_match, wanted, predictions[key])
            f1 += best(lambda answer, found: word_f1(answer, found, of_nothing=0.0), wanted, predictions[key])
    return {"exact": 100 * exact / len(gold), "f1": 100 * f1 / len(gold), "total": len(gold)}


def squad2_measures(
    gold: Gold,
    predictions: Mapping[str, str],
    null_scores: Mapping[str, float] | None = None,
    *,
    threshold: float = OFFICIAL_THRESHOLD,
) -> dict[str, float]:
    """Measure answers; an empty one means "cannot be answered", a missing one is not counted.

    Returns `exact` and `f1` over all questions, over those with an answer (`has_answer_`) and without one
    (`no_answer_`). A null score is any number that is larger if a question seems unanswerable; questions above the
    threshold are unanswered.

    >>> squad2_measures({"a": ["Nile"], "b": []}, {"a": "Nile", "b": "Rhine"})["exact"]
    50.0
    """
    kept = list(raw_scores(gold, predictions))
    if null_scores is not None:
        for scores in kept:
            unanswered = [key for key in scores if null_scores[key] > threshold]
            scores |= {key: float(not gold[key]) for key in unanswered}  # silence is right where nothing is
    questions = list(kept[0])
    require_some(len(questions))
    parts = {
        "": questions,
        "has_answer_": [key for key in questions if gold[key]],
        "no_answer_": [key for key in questions if not gold[key]],
    }
    measures: dict[str, float] = {}
    for prefix, keys in parts.items():
        if keys:
            exact, f1 = (100.0 * sum(scores[key] for key in keys) / len(keys) for scores in kept)
            measures |= {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": len(keys)}
    return measures


def threshold_measures(
    gold: Gold, predictions: Mapping[str, str], null_scores: Mapping[str, float]
) -> dict[str, float]:
    """Return the results of the best thresholds, found on these very questions.

    These are `best_exact`, `best_f1` and their thresholds; and, if some questions have an answer, the average precision
    of answering the surest first (`exact_`, `f1_average_precision`).
    """
    measures: dict[str, float] = {}
    for name, scores in zip(("exact", "f1"), raw_scores(gold, predictions), strict=True):
        highest, where = best_threshold(scores, predictions, null_scores, gold)
        measures |= {f"best_{name}": highest, f"best_{name}_threshold": where}
        if any(gold.values()):
            measures[f"{name}_average_precision"] = average_precision(scores, null_scores, gold)
    return measures


def raw_scores(gold: Gold, predictions: Mapping[str, str]) -> tuple[ScoreById, ScoreById]:
    """Return exact match and F1 of every question that has a prediction, before any threshold."""
    exact, f1 = {}, {}
    for key, answers in gold.items():
        if key in predictions:
            wanted = [answer for answer in answers if normalized_answer(answer)] or [""]  # "": has no answer
            exact[key] = best(exact_match, wanted, predictions[key])
            f1[key] = best(word_f1, wanted, predictions[key])
    return exact, f1


def best_threshold(
    scores: Mapping[str, float], predictions: Mapping[str, str], null_scores: Mapping[str, float], gold: Gold
) -> tuple[float, float]:
    """Return the best mean score of any threshold, and the null score of the last one answered.

    As in the official script, the threshold of answering nothing is 0.0 for any scores, and a threshold may fall
    between two questions with the same score.
    """
    require_some(len(scores))
    score = highest = float(sum(not answers for answers in gold.values()))  # of answering nothing
    threshold = 0.0
    for key in sorted(null_scores, key=null_scores.__getitem__):
        if key not in scores:
            continue
        # One question more is answered: it gains its score, or loses the point that silence had.
        score += scores[key] if gold[key] else -bool(predictions[key])
        if score > highest:
            highest, threshold = score, null_scores[key]
    return 100 * highest / len(scores), threshold


def average_precision(scores: Mapping[str, float], null_scores: Mapping[str, float], gold: Gold) -> float:
    """Return the area under the precision-recall curve of answering the surest questions first.

    A hit is a score in [0, 1], which scikit-learn's average precision cannot take.
    """
    ids = [key for key in sorted(null_scores, key=null_scores.__getitem__) if key in scores]
    num_answerable = sum(bool(answers) for answers in gold.values())
    hits = area = recall = 0.0
    for place, key in enumerate(ids):
        if gold[key]:
            hits += scores[key]
        is_last_of_score = place + 1 == len(ids) or null_scores[key] != null_scores[ids[place + 1]]
        if is_last_of_score:
            area += hits / (place + 1) * (hits / num_answerable - recall)  # precision times the gain in recall
            recall = hits / num_answerable
    return 100 * area
