"""Measures of a model without fine-tuning: minimal pairs (BLiMP), sentence similarity,
retrieval.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.inference.model import Model
from litebert.metrics import regression_measures
from litebert.reading.tables import Row
from litebert.tasks.own.cells import number_of
from litebert.tasks.own.layouts import open_table

BLIMP_COLUMNS = ("sentence_good", "sentence_bad", "UID", "field")
# as STS-B and SICK name them
PAIR_COLUMNS = (
    ("sentence1", "sentence2", "score"),
    ("sentence_A", "sentence_B", "relatedness_score"),
)
RETRIEVAL_COLUMNS = ("question", "context")
# questions whose cosines with all paragraphs are in memory at once
MOST_BLOCKED = 4_096


def blimp(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the share of minimal pairs in which the good sentence is likelier, overall
    and by field.

    Sentences are compared by pseudo-log-likelihood (Salazar et al., 2020); BLiMP is
    from Warstadt et al. (2020). All paradigms (`UID`) have the same weight; `limit`
    keeps only the first pairs of each.
    """
    paradigms: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in _rows(data, "blimp", [BLIMP_COLUMNS]):
        # BLiMP has two spellings of one field
        field = str(row["field"]).replace("/", "_")
        paradigms[field, str(row["UID"])].append(row)

    shares_by_field: dict[str, list[float]] = defaultdict(list)
    for (field, _), rows in sorted(paradigms.items()):
        share = _share_of_good(model, rows[:limit])
        shares_by_field[field].append(share)

    # Over the paradigms, not over the fields: fields differ in their number of paradigms.
    measures = {"blimp": mean(chain.from_iterable(shares_by_field.values()))}
    for field, shares in shares_by_field.items():
        measures[f"blimp_{field}"] = mean(shares)
    return measures


def _share_of_good(model: Model, rows: Sequence[Row]) -> float:
    """Return the share of minimal pairs in which the good sentence is likelier."""
    sentences = list[str]()
    for row in rows:
        sentences += [str(row["sentence_good"]), str(row["sentence_bad"])]
    likelihoods = [score.log_likelihood for score in model.score(sentences)]
    pairs = np.array(likelihoods).reshape(-1, 2)  # (pairs, good and bad)
    return float((pairs[:, 0] > pairs[:, 1]).mean())


def sts(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the correlations of cosines with the human scores of sentence pairs
    (STS-B, SICK).
    """
    rows = _rows(data, "sts", PAIR_COLUMNS)[:limit]
    columns = next(names for names in PAIR_COLUMNS if set(names) <= set(rows[0]))
    first_column, second_column, score_column = columns
    scores = _human_scores(rows, score_column, data)  # (pairs,)
    first = model.embed([str(row[first_column]) for row in rows], normalize=True)
    second = model.embed([str(row[second_column]) for row in rows], normalize=True)
    # (pairs, hidden) each, of length 1: their products add up to the cosines
    cosines = (first * second).sum(1)
    measures = regression_measures(scores, cosines)
    return {"sts_spearman": measures["spearman"], "sts_pearson": measures["pearson"]}


def _human_scores(rows: Sequence[Row], column: str, data: Path) -> NDArray[np.float64]:
    """Return the scores of all pairs; raise LB-992 if one is not a number."""
    scores = np.array([number_of(row[column]) for row in rows], dtype=np.float64)
    missing = np.flatnonzero(np.isnan(scores))
    if missing.size == 0:
        return scores
    place = int(missing[0])
    raise LitebertError(
        "LB-992",
        f"{data}, row {place + 1}: the {column} is not a number",
        received=str(rows[place][column]),
        next=f"correct or remove this row: {data}",
    )


def retrieval(
    model: Model, data: Path, *, limit: int | None = None
) -> dict[str, float]:
    """Return how well questions find their paragraph among all paragraphs of a file, by
    cosine.

    `data` is in SQuAD's layout, or rows with `question` and `context`. The mean
    reciprocal rank counts ranks beyond 10 as 0; recall at k is the share of questions
    found among the first k.
    """
    rows = _rows(data, "retrieval", [RETRIEVAL_COLUMNS])[:limit]
    # A paragraph has several questions: it counts once, in order of appearance.
    contexts = list(dict.fromkeys(str(row["context"]) for row in rows))
    numbers = {context: number for number, context in enumerate(contexts)}
    wanted = np.array([numbers[str(row["context"])] for row in rows])  # (questions,)
    vectors = model.embed(contexts, normalize=True)  # (contexts, hidden)
    questions = model.embed([str(row["question"]) for row in rows], normalize=True)

    # how many paragraphs are nearer than the wanted one: (questions,)
    ranks = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), MOST_BLOCKED):
        block = slice(start, start + MOST_BLOCKED)
        cosines = questions[block] @ vectors.T  # (block, contexts)
        wanted_cosines = np.take_along_axis(cosines, wanted[block, None], axis=1)
        ranks[block] = (cosines > wanted_cosines).sum(1)

    reciprocal_ranks = np.where(ranks < 10, 1 / (1 + ranks), 0.0)
    measures = {"retrieval_mrr": float(reciprocal_ranks.mean())}
    for k in (1, 5, 10):
        measures[f"retrieval_recall_at_{k}"] = float((ranks < k).mean())
    return measures


def _rows(data: Path, measure: str, columns: Sequence[tuple[str, ...]]) -> list[Row]:
    """Return the rows of a file; all must have the columns of one of the tuples, or
    LB-992 is raised.
    """
    rows = [row for _, row in open_table(data, has_header=True).rows()]
    if not rows:
        raise _no_rows(data, measure, columns, received="no rows")
    # The first row says which of the layouts the file has.
    layout = next((names for names in columns if set(names) <= set(rows[0])), None)
    for row in rows:
        if layout is None or not set(layout) <= set(row):
            raise _no_rows(data, measure, columns, received=", ".join(row))
    return rows


def _no_rows(
    data: Path, measure: str, columns: Sequence[tuple[str, ...]], *, received: str
) -> LitebertError:
    return LitebertError(
        "LB-992",
        f"{data} has no rows for {measure}",
        received=received or "no rows",
        expected=" or ".join(map(", ".join, columns)),
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
