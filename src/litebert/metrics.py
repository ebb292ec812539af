"""The standard metrics under their usual names and definitions, from scikit-learn and
scipy where those are exact.

Metrics of answers match the official scripts (evaluate-v1.1.py, evaluate-v2.0.py) digit
for digit, in percent; entities are counted as in conlleval and seqeval. Undefined
values are 0. Without examples, all raise LB-430.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean, median, stdev

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError

# in multi-label classification, a label is predicted at this probability or above
MARKED_FROM = 0.5


def require_some(number: int) -> None:
    """Raise an error if there are no examples."""
    if not number:
        what = "there is nothing to measure: not one labelled example"
        raise LitebertError("LB-430", what, next="give a file or a split with labels")


# Labels and numbers.


def classification_measures(
    labels: NDArray[np.int64], probabilities: NDArray[np.floating]
) -> dict[str, float]:
    """Compare labels (n,) with probabilities (n, L); the most likely label is the
    prediction.

    Returns `accuracy` and `matthews`; for two labels also `f1` of label 1 (GLUE), for
    more `macro_f1`, the mean over the labels that occur or are predicted.
    """
    from sklearn import metrics

    require_some(len(labels))
    found = probabilities.argmax(axis=1)
    name = "macro_f1"
    average = "macro"
    if probabilities.shape[1] == 2:
        name = "f1"
        average = "binary"
    # else the correlation is 0 / 0
    has_spread = len(np.unique(labels)) > 1 and len(np.unique(found)) > 1
    return {
        "accuracy": float(metrics.accuracy_score(labels, found)),
        name: float(
            metrics.f1_score(labels, found, average=average, zero_division=0.0)
        ),
        "matthews": (
            float(metrics.matthews_corrcoef(labels, found)) if has_spread else 0.0
        ),
    }


def multi_label_measures(
    marked: NDArray[np.int64], probabilities: NDArray[np.floating]
) -> dict[str, float]:
    """Compare marks of 0 or 1 (n, L) with probabilities (n, L).

    Returns `micro_f1` over all marks, `macro_f1`, the mean over labels, and
    `exact_match`, the share of rows in which every mark is right.
    """
    from sklearn import metrics

    require_some(len(marked))
    # (n, labels), each label by itself
    found = (probabilities >= MARKED_FROM).astype(np.int64)
    return {
        "micro_f1": float(
            metrics.f1_score(marked, found, average="micro", zero_division=0.0)
        ),
        "macro_f1": float(
            metrics.f1_score(marked, found, average="macro", zero_division=0.0)
        ),
        "exact_match": float((marked == found).all(axis=1).mean()),
    }


def regression_measures(
    wanted: NDArray[np.floating], values: NDArray[np.floating]
) -> dict[str, float]:
    """Compare n correct scores with n predictions, both of shape (n, 1) or (n,).

    Returns `pearson`, `spearman` (ties share their mean rank) and `mse`; if one side is
    constant, correlations are 0.
    """
    from scipy import stats

    require_some(wanted.size)
    first = wanted.astype(np.float64).ravel()
    second = values.astype(np.float64).ravel()
    has_spread = np.ptp(first) > 0 and np.ptp(second) > 0
    return {
        "pearson": (
            float(stats.pearsonr(first, second).statistic) if has_spread else 0.0
        ),
        "spearman": (
            float(stats.spearmanr(first, second).statistic) if has_spread else 0.0
        ),
        "mse": float(np.square(first - second).mean()),
    }


@dataclass(frozen=True)
class Spread:
    """Median, mean and sample standard deviation of `number` values, such as a metric
    over several seeds.
    """

    median: float
    mean: float
    spread: float
    number: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise values; the spread of a single value is 0."""
        return cls(
            median(values),
            mean(values),
            stdev(values) if len(values) > 1 else 0.0,
            len(values),
        )


# Tags such as B-PER, I-PER and O; the last of an entity may be E and a single one S
# (BIOES), or L and U (BILOU).

BEGIN = ("B", "S", "U")
INSIDE = ("I", "E", "L")
LAST = ("E", "L", "S", "U")


def tagging_measures(
    wanted: Sequence[Sequence[str]], found: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Compare tags, one list per sentence.

    `precision`, `recall` and `f1` count entities whose kind and both ends are right;
    `accuracy` counts tags.
    """
    tags = [
        pair
        for rows in zip(wanted, found, strict=True)
        for pair in zip(*rows, strict=True)
    ]
    require_some(len(tags))
    expected, given = (
        {(n, *each) for n, row in enumerate(rows) for each in entities(row)}
        for rows in (wanted, found)
    )
    # an entity is (sentence, kind, first tag, end): all of it must be right
    hits = len(expected & given)
    return {
        "precision": hits / max(len(given), 1),
        "recall": hits / max(len(expected), 1),
        "f1": 2 * hits / max(len(given) + len(expected), 1),
        "accuracy": sum(tag == other for tag, other in tags) / len(tags),
    }


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return kind, first tag and end (exclusive) of each entity of a sentence.

    I-, E- or L- begins an entity if none of its kind is open, so IOB1 and broken
    sequences are read, too; a tag without any of these prefixes is outside. The kind of
    a bare B or I is "".
    """
    closed: list[tuple[str, int, int]] = []
    kind: str | None = None
    start = 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, own = tag.partition("-")
        # anything but its own I- ends the open entity
        if kind is not None and not (prefix in INSIDE and own == kind):
            closed.append((kind, start, place))
            kind = None
        if kind is None and prefix in BEGIN + INSIDE:
            kind = own
            start = place
        if kind is not None and prefix in LAST:
            closed.append((kind, start, place + 1))
            kind = None
    return closed


# Answers found in texts.

Found = Mapping[str, str]  # the answer to each question, by its id
# the right answers of each question, by its id; none if it cannot be answered
Gold = Mapping[str, Sequence[str]]
# evaluate-v2.0.py's --na-prob-thresh: with a larger null score, a question is
# unanswered
OFFICIAL_THRESHOLD = 1.0

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return an answer in lower case without punctuation, English articles or extra
    space.
    """
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def word_f1(wanted: str, found: str, *, of_nothing: float = 1.0) -> float:
    """Return the F1 of the words of two answers; `of_nothing` if neither has words,
    which version 1.1 counts as 0.
    """
    one = normalize_answer(wanted).split()
    other = normalize_answer(found).split()
    if not one and not other:
        return of_nothing
    # a word counts as often as it occurs in both
    num_shared = sum((Counter(one) & Counter(other)).values())
    if not num_shared:
        return 0.0
    precision = num_shared / len(other)
    recall = num_shared / len(one)
    return 2 * precision * recall / (precision + recall)


def exact_and_f1(
    wanted: Sequence[str], found: str, *, of_nothing: float = 1.0
) -> tuple[float, float]:
    """Return the highest exact match and F1 against any right answer; 0 without a right
    answer.
    """
    exact = any(
        normalize_answer(answer) == normalize_answer(found) for answer in wanted
    )
    return float(exact), max(
        (word_f1(answer, found, of_nothing=of_nothing) for answer in wanted),
        default=0.0,
    )


def squad1_measures(gold: Gold, predictions: Found) -> dict[str, float]:
    """Return `exact` and `f1` over all questions; one without a prediction counts as
    wrong.
    """
    require_some(len(gold))
    exact = f1 = 0.0
    # in order: sums of floats depend on it
    for key in (key for key in gold if key in predictions):
        scores = exact_and_f1(gold[key], predictions[key], of_nothing=0.0)
        exact = exact + scores[0]
        f1 = f1 + scores[1]
    return {
        "exact": 100 * exact / len(gold),
        "f1": 100 * f1 / len(gold),
        "total": len(gold),
    }


def squad2_measures(
    gold: Gold, predictions: Found, null_scores: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Measure answers; an empty one means "cannot be answered", a missing one is not
    counted.

    Returns `exact` and `f1` over all questions, over those with an answer
    (`has_answer_`) and without one (`no_answer_`). A null score is any number that is
    larger if a question seems unanswerable; questions above the official threshold
    count as unanswered.
    """
    kept = raw_scores(gold, predictions)
    for key in kept:
        if null_scores is not None and null_scores[key] > OFFICIAL_THRESHOLD:
            # no answer is right where there is none
            kept[key] = (float(not gold[key]), float(not gold[key]))
    require_some(len(kept))
    parts = {
        "": list(kept.values()),
        "has_answer_": [scores for key, scores in kept.items() if gold[key]],
        "no_answer_": [scores for key, scores in kept.items() if not gold[key]],
    }
    measures: dict[str, float] = {}
    for prefix, some in parts.items():
        if some:
            exact, f1 = (
                100.0 * sum(scores) / len(some) for scores in zip(*some, strict=True)
            )
            measures |= {
                f"{prefix}exact": exact,
                f"{prefix}f1": f1,
                f"{prefix}total": len(some),
            }
    return measures


def threshold_measures(
    gold: Gold, predictions: Found, null_scores: Mapping[str, float]
) -> dict[str, float]:
    """Return the results of the best thresholds, found on these very questions.

    These are `best_exact`, `best_f1` and their thresholds; and, if some questions have
    an answer, the average precision of answering the most certain first (`exact_`,
    `f1_average_precision`).
    """
    raw = raw_scores(gold, predictions)
    measures = dict[str, float]()
    require_some(len(raw))
    surest = [
        key for key in sorted(null_scores, key=null_scores.__getitem__) if key in raw
    ]
    nulls = [null_scores[key] for key in surest]
    num_answerable = sum(map(bool, gold.values()))
    for which, name in enumerate(("exact", "f1")):
        # An answer gains its score, or loses the point for no answer.
        gains = [
            raw[key][which] if gold[key] else -float(bool(predictions[key]))
            for key in surest
        ]
        best, threshold = best_threshold(gains, nulls, len(gold) - num_answerable)
        measures |= {
            f"best_{name}": 100 * best / len(raw),
            f"best_{name}_threshold": threshold,
        }
        if num_answerable:
            scores = [max(gain, 0.0) for gain in gains]
            measures[f"{name}_average_precision"] = 100 * average_precision(
                scores, nulls, num_answerable
            )
    return measures


def best_threshold(
    gains: Sequence[float], nulls: Sequence[float], nothing: float
) -> tuple[float, float]:
    """Return the highest total and its threshold, given the gain of each answer, the
    surest first, and `nothing`'s.

    As in the official script, the threshold of answering nothing is 0.0 for any scores,
    and a threshold may fall between two questions with the same score.
    """
    totals = list(accumulate(gains, initial=float(nothing)))
    place = totals.index(max(totals))
    return totals[place], [0.0, *nulls][place]


def average_precision(
    scores: Sequence[float], nulls: Sequence[float], num_answerable: int
) -> float:
    """Return the area under the precision-recall curve of scores in [0, 1], which
    scikit-learn's cannot use.
    """
    area = recall = 0.0
    for number, hits in enumerate(accumulate(scores), start=1):
        # the last of those with one null score
        if number == len(nulls) or nulls[number] != nulls[number - 1]:
            # precision times the gain in recall
            area += hits / number * (hits / num_answerable - recall)
            recall = hits / num_answerable
    return area


def raw_scores(gold: Gold, predictions: Found) -> dict[str, tuple[float, float]]:
    """Return exact match and F1 of every question that has a prediction, before any
    threshold.
    """
    found = {}
    for key, answers in gold.items():
        if key in predictions:
            # "": has no answer
            wanted = [answer for answer in answers if normalize_answer(answer)] or [""]
            found[key] = exact_and_f1(wanted, predictions[key])
    return found
