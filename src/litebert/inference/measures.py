"""Measures of a model without fine-tuning: minimal pairs (BLiMP), sentence similarity,
retrieval.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.inference.model import Model
from litebert.metrics import count_nearer, regression_measures
from litebert.reading.tables import Row
from litebert.tasks.tables.cells import number_of
from litebert.tasks.tables.layouts import open_table

BLIMP_COLUMNS = ("sentence_good", "sentence_bad", "UID", "field")
# as STS-B and SICK name them
PAIR_COLUMNS = (
    ("sentence1", "sentence2", "score"),
    ("sentence_A", "sentence_B", "relatedness_score"),
)
RETRIEVAL_COLUMNS = ("question", "context")


# ---- BLiMP ---------------------------------------------------------------------------


def blimp(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the share of minimal pairs in which the good sentence is likelier, overall
    and by field.

    Sentences are compared by pseudo-log-likelihood (Salazar et al., 2020); BLiMP is
    from Warstadt et al. (2020). All paradigms (`UID`) have the same weight; `limit`
    keeps only the first pairs of each.
    """
    pairs_of = defaultdict[tuple[str, str], list[tuple[str, str]]](list)
    for good, bad, paradigm, field in _read(data, "blimp", [BLIMP_COLUMNS]).rows:
        # BLiMP has two spellings of one field
        field_name = field.replace("/", "_")
        pairs_of[field_name, paradigm].append((good, bad))

    shares_of = defaultdict[str, list[float]](list)
    for (field_name, _), pairs in sorted(pairs_of.items()):
        share = _share_of_good(model, pairs[:limit])
        shares_of[field_name].append(share)

    # Over the paradigms, not over the fields: fields differ in their number of paradigms.
    shares_of_paradigms = chain.from_iterable(shares_of.values())
    measures = {"blimp": mean(shares_of_paradigms)}
    for field_name, shares in shares_of.items():
        measures[f"blimp_{field_name}"] = mean(shares)
    return measures


def _share_of_good(model: Model, pairs: Sequence[tuple[str, str]]) -> float:
    """Return the share of pairs (good, bad) in which the good sentence is likelier."""
    sentences = list(chain.from_iterable(pairs))
    scores = model.score(sentences)
    likelihoods = np.array([score.log_likelihood for score in scores])
    good = likelihoods[0::2]  # (pairs,)
    bad = likelihoods[1::2]
    return float((good > bad).mean())


# ---- similarity of sentences ---------------------------------------------------------


def sts(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the correlations of cosines with the human scores of sentence pairs
    (STS-B, SICK).
    """
    table = _read(data, "sts", PAIR_COLUMNS)
    rows = table.rows[:limit]
    human_scores = _human_scores(rows, table.columns[2], data)  # (pairs,)
    first = model.embed([row[0] for row in rows], normalize=True)  # (pairs, width)
    second = model.embed([row[1] for row in rows], normalize=True)
    # of vectors with length 1, the scalar product is the cosine
    cosines = (first * second).sum(1)  # (pairs,)
    measures = regression_measures(human_scores, cosines)
    return {"sts_spearman": measures["spearman"], "sts_pearson": measures["pearson"]}


def _human_scores(
    rows: Sequence[Sequence[str]], column: str, data: Path
) -> NDArray[np.float64]:
    """Return the score of each pair, its third cell; raise LB-992 if one is not a
    number.
    """
    scores = list[float]()
    for number, (_, _, cell) in enumerate(rows, start=1):
        score = number_of(cell)
        if score is None:
            raise LitebertError(
                "LB-992",
                f"{data}, row {number}: the {column} is not a number",
                received=cell,
                next=f"correct or remove this row: {data}",
            )
        scores.append(score)
    return np.array(scores)


# ---- retrieval -----------------------------------------------------------------------


def retrieval(
    model: Model, data: Path, *, limit: int | None = None
) -> dict[str, float]:
    """Return how well questions find their paragraph among all paragraphs of a file, by
    cosine.

    `data` is in SQuAD's layout, or rows with `question` and `context`. The mean
    reciprocal rank counts ranks beyond 10 as 0; recall at k is the share of questions
    found among the first k.
    """
    rows = _read(data, "retrieval", [RETRIEVAL_COLUMNS]).rows[:limit]
    # A paragraph has several questions: it gets one number, in order of appearance.
    numbers = dict[str, int]()
    for _, context in rows:
        numbers.setdefault(context, len(numbers))
    contexts = model.embed(list(numbers), normalize=True)  # (contexts, width)
    questions = model.embed([question for question, _ in rows], normalize=True)
    wanted = np.array([numbers[context] for _, context in rows])  # (questions,)

    num_nearer, _ = count_nearer(questions, contexts, wanted)  # (questions,)
    reciprocal_ranks = np.where(num_nearer < 10, 1 / (1 + num_nearer), 0.0)
    measures = {"retrieval_mrr": float(reciprocal_ranks.mean())}
    for k in (1, 5, 10):
        is_among_first = num_nearer < k
        measures[f"retrieval_recall_at_{k}"] = float(is_among_first.mean())
    return measures


# ---- files ---------------------------------------------------------------------------


class _Table(NamedTuple):
    """The columns that a measure reads, and their cells in each row, as texts."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def _read(data: Path, measure: str, layouts: Sequence[tuple[str, ...]]) -> _Table:
    """Read the columns of the layout that a file has; raise LB-992 if it has none, or
    if a row lacks one of its columns.
    """
    rows = [row for _, row in open_table(data, has_header=True).rows()]
    if not rows:
        raise _no_rows(data, measure, layouts, received="no rows")
    # The first row says which of the layouts the file has.
    columns = next((names for names in layouts if _has(rows[0], names)), layouts[0])
    table = list[tuple[str, ...]]()
    for row in rows:
        if not _has(row, columns):
            names = ", ".join(row) or "no rows"
            raise _no_rows(data, measure, layouts, received=names)
        table.append(tuple(str(row[name]) for name in columns))
    return _Table(columns, table)


def _has(row: Row, columns: Sequence[str]) -> bool:
    return set(columns) <= set(row)


def _no_rows(
    data: Path, measure: str, layouts: Sequence[tuple[str, ...]], *, received: str
) -> LitebertError:
    return LitebertError(
        "LB-992",
        f"{data} has no rows for {measure}",
        received=received,
        expected=" or ".join(map(", ".join, layouts)),
        next="litebert evaluate --help",
    )


MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "blimp": blimp,
    "sts": sts,
    "retrieval": retrieval,
}
"""The measures of `litebert evaluate --on`; each takes a model, a file, and a limit on
its rows.
"""
