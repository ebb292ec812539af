"""The standard metrics under their usual names and definitions, from scikit-learn and
scipy where those are exact.

Metrics of answers match the official scripts (evaluate-v1.1.py, evaluate-v2.0.py) digit
for digit, in percent; entities are counted as in conlleval and seqeval. Undefined
values are 0. Without examples, all raise LB-430.
"""

import re
import string
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean, median, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError

# in multi-label classification, a label is predicted at this probability or above
MARKED_FROM = 0.5


def require_examples(number: int) -> None:
    """Raise an error if there are no examples."""
    if not number:
        raise LitebertError(
            "LB-430",
            "no labeled examples found",
            next="give a file or a split with labels",
        )


# ---- labels and numbers --------------------------------------------------------------


def classification_measures(
    labels: NDArray[np.int64], probabilities: NDArray[np.floating]
) -> dict[str, float]:
    """Compare labels (n,) with probabilities (n, L); the most likely label is the
    prediction.

    Returns `accuracy` and `matthews`; for two labels also `f1` of label 1 (GLUE), for
    more `macro_f1`, the mean over the labels that occur or are predicted.
    """
    from sklearn import metrics

    require_examples(len(labels))
    predicted = probabilities.argmax(axis=1)
    name = "macro_f1"
    average = "macro"
    if probabilities.shape[1] == 2:
        name = "f1"
        average = "binary"
    f1 = metrics.f1_score(labels, predicted, average=average, zero_division=0.0)
    matthews = 0.0  # without a spread on both sides, it would be 0 / 0
    if len(np.unique(labels)) > 1 and len(np.unique(predicted)) > 1:
        matthews = float(metrics.matthews_corrcoef(labels, predicted))
    return {
        "accuracy": float(metrics.accuracy_score(labels, predicted)),
        name: float(f1),
        "matthews": matthews,
    }


def multi_label_measures(
    marked: NDArray[np.int64], probabilities: NDArray[np.floating]
) -> dict[str, float]:
    """Compare marks of 0 or 1 (n, L) with probabilities (n, L).

    Returns `micro_f1` over all marks, `macro_f1`, the mean over labels, and
    `exact_match`, the share of rows in which every mark is right.
    """
    from sklearn import metrics

    require_examples(len(marked))
    predicted = (probabilities >= MARKED_FROM).astype(np.int64)  # (n, L)
    micro = metrics.f1_score(marked, predicted, average="micro", zero_division=0.0)
    macro = metrics.f1_score(marked, predicted, average="macro", zero_division=0.0)
    return {
        "micro_f1": float(micro),
        "macro_f1": float(macro),
        "exact_match": float((marked == predicted).all(axis=1).mean()),
    }


def regression_measures(
    wanted: NDArray[np.floating], values: NDArray[np.floating]
) -> dict[str, float]:
    """Compare n correct scores with n predictions, both of shape (n, 1) or (n,).

    Returns `pearson`, `spearman` (ties share their mean rank) and `mse`; if one side is
    constant, correlations are 0.
    """
    from scipy import stats

    require_examples(wanted.size)
    first = wanted.astype(np.float64).ravel()
    second = values.astype(np.float64).ravel()
    pearson = 0.0
    spearman = 0.0
    if np.ptp(first) > 0 and np.ptp(second) > 0:
        pearson = float(stats.pearsonr(first, second).statistic)
        spearman = float(stats.spearmanr(first, second).statistic)
    mse = float(np.square(first - second).mean())
    return {"pearson": pearson, "spearman": spearman, "mse": mse}


# vectors whose products with all candidates are in memory at once
_VECTORS_AT_ONCE = 1_000


def count_nearer(
    vectors: NDArray[np.floating],
    candidates: NDArray[np.floating],
    partners: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each vector how many candidates are nearer than its partner, and how
    many are as near, the partner among them: (vectors,) each.

    `partners` (vectors,) has the number of a candidate for each vector; all have length
    1, so that products are cosines.
    """
    num_nearer = np.zeros(len(vectors), dtype=np.int64)
    num_equal = np.zeros(len(vectors), dtype=np.int64)
    for start in range(0, len(vectors), _VECTORS_AT_ONCE):
        block = slice(start, start + _VECTORS_AT_ONCE)
        cosines = vectors[block] @ candidates.T  # (block, candidates)
        of_partner = np.take_along_axis(cosines, partners[block, None], axis=1)
        num_nearer[block] = (cosines > of_partner).sum(1)
        num_equal[block] = (cosines == of_partner).sum(1)
    return num_nearer, num_equal


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
        """Summarize values; the spread of a single value is 0."""
        spread = stdev(values) if len(values) > 1 else 0.0
        return cls(median(values), mean(values), spread, len(values))


# ---- tags ----------------------------------------------------------------------------

# Tags are such as B-PER, I-PER and O; the last of an entity may be E and a single one S
# (BIOES), or L and U (BILOU).
BEGIN = ("B", "S", "U")
INSIDE = ("I", "E", "L")
MARKS = tuple(f"{prefix}-" for prefix in BEGIN + INSIDE)
LAST = ("E", "L", "S", "U")
_BARE = BEGIN + INSIDE  # of entities that are all of one kind, such as key phrases


def mark_entities(labels: Collection[str]) -> bool:
    """Return whether tags mark entities: all but O are like B-PER or a bare B, or are
    names of kinds beside O (IO). Parts of speech mark none, nor do other single letters.

    >>> mark_entities(["O", "B-PER"]), mark_entities(["O", "PER"])
    (True, True)
    >>> mark_entities(["NOUN", "VERB"]), mark_entities(["O", "V"])
    (False, False)
    """
    kinds = [label for label in labels if label != "O"]
    marked = [label for label in kinds if label.startswith(MARKS) or label in _BARE]
    if marked:
        return len(marked) == len(kinds)
    return "O" in labels and any(len(label) > 1 for label in kinds)


def tagging_measures(
    wanted: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    labels: Collection[str],
) -> dict[str, float]:
    """Compare tags, one list per sentence; `labels` are all tags that a model has.

    `precision`, `recall` and `f1` count entities whose kind and both ends are right;
    `accuracy` counts tags.
    """
    num_tags = 0
    num_right = 0
    for sentence, answers in zip(wanted, predicted, strict=True):
        for tag, answer in zip(sentence, answers, strict=True):
            num_tags += 1
            if tag == answer:
                num_right += 1
    require_examples(num_tags)
    expected = _entities_of_all(wanted, labels)
    answered = _entities_of_all(predicted, labels)
    num_hits = len(expected & answered)
    # without entities, 0 instead of 0 / 0
    return {
        "precision": num_hits / max(len(answered), 1),
        "recall": num_hits / max(len(expected), 1),
        "f1": 2 * num_hits / max(len(answered) + len(expected), 1),
        "accuracy": num_right / num_tags,
    }


class Entity(NamedTuple):
    """An entity of a sentence: its tags are `tags[first:end]`."""

    kind: str  # such as PER; "" for bare tags B and I
    first: int
    end: int


def _entities_of_all(
    sentences: Sequence[Sequence[str]], labels: Collection[str]
) -> set[tuple[int, Entity]]:
    """Return the entities of all sentences, each with the number of its sentence. Two
    are the same only if sentence, kind and both ends are.
    """
    all_entities = set[tuple[int, Entity]]()
    for number, tags in enumerate(sentences):
        for entity in named_entities(tags, labels):
            all_entities.add((number, entity))
    return all_entities


def named_entities(tags: Sequence[str], labels: Collection[str]) -> list[Entity]:
    """Return the entities of a sentence, given all tags that a model has: BIO, BIOES,
    BILOU, or IO, in which neighbors with one tag are one entity. Tags without O, such
    as parts of speech, mark none.

    >>> named_entities(["PER", "PER", "O"], ["O", "PER"])
    [Entity(kind='PER', first=0, end=2)]
    >>> named_entities(["NOUN", "VERB"], ["NOUN", "VERB"])
    []
    """
    kinds = [label for label in labels if label != "O"]
    are_bare = all(label in _BARE for label in kinds)
    if are_bare or any(label.startswith(MARKS) for label in kinds):
        return entities(tags)
    if not mark_entities(labels):
        return []
    inside_tags = list[str]()
    for tag in tags:
        inside_tags.append(tag if tag == "O" else f"I-{tag}")
    return entities(inside_tags)


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence.

    I-, E- or L- begins an entity if none of its kind is open, so IOB1 and broken
    sequences are read, too; a tag without any of these prefixes is outside.
    """
    closed = list[Entity]()
    kind: str | None = None  # of the open entity; None if none is open
    start = 0  # the first tag of the open entity
    for place, tag in enumerate([*tags, "O"]):  # O ends an entity at the last tag
        prefix, _, tag_kind = tag.partition("-")
        # anything but an I- of its kind ends the open entity
        if kind is not None and not (prefix in INSIDE and tag_kind == kind):
            closed.append(Entity(kind, start, place))
            kind = None
        if kind is None and prefix in BEGIN + INSIDE:
            kind = tag_kind
            start = place
        if kind is not None and prefix in LAST:
            closed.append(Entity(kind, start, place + 1))
            kind = None
    return closed


# ---- answers found in texts ----------------------------------------------------------

Predictions = Mapping[str, str]  # the answer to each question, by its id
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


def word_f1(wanted: str, predicted: str, *, of_nothing: float = 1.0) -> float:
    """Return the F1 of the words of two answers; `of_nothing` if neither has words,
    which version 1.1 counts as 0.
    """
    wanted_words = normalize_answer(wanted).split()
    predicted_words = normalize_answer(predicted).split()
    if not wanted_words and not predicted_words:
        return of_nothing
    # a word counts as often as it occurs in both
    shared = Counter(wanted_words) & Counter(predicted_words)
    num_shared = sum(shared.values())
    if not num_shared:
        return 0.0
    precision = num_shared / len(predicted_words)
    recall = num_shared / len(wanted_words)
    return 2 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class AnswerScore:
    """How right an answer is, in [0, 1]."""

    exact: float  # 1 if it is a right answer, once both are normalized
    f1: float  # of its words


def score_answer(
    wanted: Sequence[str], predicted: str, *, of_nothing: float = 1.0
) -> AnswerScore:
    """Return the highest exact match and F1 against any right answer; 0 without a right
    answer.
    """
    exact = 0.0
    f1 = 0.0
    for answer in wanted:
        is_same = normalize_answer(answer) == normalize_answer(predicted)
        exact = max(exact, float(is_same))
        f1 = max(f1, word_f1(answer, predicted, of_nothing=of_nothing))
    return AnswerScore(exact, f1)


def _raw_scores(gold: Gold, predictions: Predictions) -> dict[str, AnswerScore]:
    """Return the score of every question that has a prediction, before any
    threshold.
    """
    scores = dict[str, AnswerScore]()
    for key, answers in gold.items():
        if key in predictions:
            wanted = [answer for answer in answers if normalize_answer(answer)]
            # a question that cannot be answered has the right answer ""
            scores[key] = score_answer(wanted or [""], predictions[key])
    return scores


def squad1_measures(gold: Gold, predictions: Predictions) -> dict[str, float]:
    """Return `exact` and `f1` over all questions; one without a prediction counts as
    wrong.
    """
    require_examples(len(gold))
    exact_sum = 0.0
    f1_sum = 0.0
    for key, answers in gold.items():  # in order: sums of floats depend on it
        if key in predictions:
            score = score_answer(answers, predictions[key], of_nothing=0.0)
            exact_sum += score.exact
            f1_sum += score.f1
    return {
        "exact": 100 * exact_sum / len(gold),
        "f1": 100 * f1_sum / len(gold),
        "total": len(gold),
    }


def squad2_measures(
    gold: Gold, predictions: Predictions, null_scores: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Measure answers; an empty one means "cannot be answered", a missing one is not
    counted.

    Returns `exact` and `f1` over all questions, over those with an answer
    (`has_answer_`) and without one (`no_answer_`). A null score is any number that is
    larger if a question seems unanswerable; questions above the official threshold
    count as unanswered.
    """
    scores = _raw_scores(gold, predictions)
    require_examples(len(scores))
    for key in scores:
        if null_scores is not None and null_scores[key] > OFFICIAL_THRESHOLD:
            # left unanswered, which is right where there is no answer
            is_right = float(not gold[key])
            scores[key] = AnswerScore(is_right, is_right)
    answerable = [score for key, score in scores.items() if gold[key]]
    unanswerable = [score for key, score in scores.items() if not gold[key]]
    return {
        **_mean_scores("", list(scores.values())),
        **_mean_scores("has_answer_", answerable),
        **_mean_scores("no_answer_", unanswerable),
    }


def _mean_scores(prefix: str, scores: Sequence[AnswerScore]) -> dict[str, float]:
    """Return the means of scores in percent, and their number; none without scores."""
    if not scores:
        return {}
    exact_sum = sum(score.exact for score in scores)
    f1_sum = sum(score.f1 for score in scores)
    return {
        f"{prefix}exact": 100.0 * exact_sum / len(scores),
        f"{prefix}f1": 100.0 * f1_sum / len(scores),
        f"{prefix}total": len(scores),
    }


# ---- thresholds of null scores, below which questions are answered --------------------


def threshold_measures(
    gold: Gold, predictions: Predictions, null_scores: Mapping[str, float]
) -> dict[str, float]:
    """Return the results of the best thresholds, found on these very questions.

    These are `best_exact`, `best_f1` and their thresholds; and, if some questions have
    an answer, the average precision of answering the most certain first (`exact_`,
    `f1_average_precision`).
    """
    scores = _raw_scores(gold, predictions)
    require_examples(len(scores))
    surest_first = sorted(null_scores, key=lambda key: null_scores[key])
    keys = [key for key in surest_first if key in scores]

    # what answering each question adds to the sum of scores
    gains = list[AnswerScore]()
    for key in keys:
        if gold[key]:
            gains.append(scores[key])
        else:  # an answer loses the point of leaving the question unanswered
            loss = -float(bool(predictions[key]))
            gains.append(AnswerScore(loss, loss))

    nulls = [null_scores[key] for key in keys]
    num_answerable = sum(bool(answers) for answers in gold.values())
    num_unanswerable = len(gold) - num_answerable
    measures = dict[str, float]()
    for name in ("exact", "f1"):
        of_measure: list[float] = [getattr(gain, name) for gain in gains]
        best = _best_threshold(of_measure, nulls, num_unanswerable)
        measures[f"best_{name}"] = 100 * best.total / len(scores)
        measures[f"best_{name}_threshold"] = best.threshold
        if num_answerable:
            hits = [max(gain, 0.0) for gain in of_measure]
            precision = _average_precision(hits, nulls, num_answerable)
            measures[f"{name}_average_precision"] = 100 * precision
    return measures


@dataclass(frozen=True)
class _BestThreshold:
    total: float  # the sum of scores that it gives
    threshold: float


def _best_threshold(
    gains: Sequence[float], nulls: Sequence[float], num_unanswerable: int
) -> _BestThreshold:
    """Return the threshold with the highest sum of scores, given the gain and the null
    score of each answer, the surest first.

    As in the official script, the threshold of answering nothing is 0.0 for any scores,
    and a threshold may fall between two questions with the same score.
    """
    # Without any answer, the questions that have none are right. Then one answer after
    # the other is added: (answers + 1,)
    totals = list(accumulate(gains, initial=float(num_unanswerable)))
    thresholds = [0.0, *nulls]
    place = totals.index(max(totals))
    return _BestThreshold(totals[place], thresholds[place])


def _average_precision(
    hits: Sequence[float], nulls: Sequence[float], num_answerable: int
) -> float:
    """Return the area under the precision-recall curve, given how right each answer is
    in [0, 1], the surest first. scikit-learn's takes no shares of a hit.
    """
    area = 0.0
    recall = 0.0  # up to the threshold before
    for number, hit_sum in enumerate(accumulate(hits), start=1):
        # a threshold falls after the last of those with one null score
        is_last_of_score = number == len(nulls) or nulls[number] != nulls[number - 1]
        if is_last_of_score:
            precision = hit_sum / number
            area += precision * (hit_sum / num_answerable - recall)
            recall = hit_sum / num_answerable
    return area
