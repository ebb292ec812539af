"""Measures of answers found in texts: SQuAD's normalisation, exact match and F1.

Results equal those of the official scripts (evaluate-v1.1.py, evaluate-v2.0.py) digit for digit, in
percent.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from litebert.metrics.some import require_some

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)

Gold = Mapping[str, Sequence[str]]
"""The right answers of each question, by its id; none if it cannot be answered."""


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


def word_f1(wanted: str, found: str) -> float:
    """Return the F1 of the words of two answers; if one has no words, 1 if neither has any.

    >>> word_f1("the river Nile", "Nile")
    0.6666666666666666
    """
    one, other = normalized_answer(wanted).split(), normalized_answer(found).split()
    if not one or not other:
        return float(one == other)
    return _shared(one, other)


def squad1_measures(gold: Gold, predictions: Mapping[str, str]) -> dict[str, float]:
    """Return `exact` and `f1` over all questions; one without a prediction counts as wrong.

    Raises:
        LitebertError: LB-430, there are no questions.

    >>> squad1_measures({"q": ["the Nile", "river Nile"]}, {"q": "Nile"})
    {'exact': 100.0, 'f1': 100.0, 'total': 1}
    """
    require_some(len(gold))
    exact = f1 = 0.0
    for key, wanted in gold.items():
        if key in predictions:
            exact += best(exact_match, wanted, predictions[key])
            f1 += best(_word_f1_of_version_1, wanted, predictions[key])
    return {"exact": 100 * exact / len(gold), "f1": 100 * f1 / len(gold), "total": len(gold)}


def best(score: Callable[[str, str], float], wanted: Sequence[str], found: str) -> float:
    """Return the highest score against any right answer; 0 if there is none."""
    return max((score(answer, found) for answer in wanted), default=0.0)


def _word_f1_of_version_1(wanted: str, found: str) -> float:
    """Return the F1 of version 1.1, which is 0 for two answers without words."""
    one, other = normalized_answer(wanted).split(), normalized_answer(found).split()
    return _shared(one, other)


def _shared(one: list[str], other: list[str]) -> float:
    num_shared = sum((Counter(one) & Counter(other)).values())
    if not num_shared:
        return 0.0
    precision, recall = num_shared / len(other), num_shared / len(one)
    return 2 * precision * recall / (precision + recall)
