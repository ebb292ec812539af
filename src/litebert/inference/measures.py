"""Measures of a model without fine-tuning: minimal pairs (BLiMP), sentence similarity,
retrieval.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from litebert.errors import LitebertError
from litebert.inference.model import Model
from litebert.metrics import regression_measures
from litebert.reading.tables import Row
from litebert.tasks.own.cells import number_of
from litebert.tasks.own.layouts import open_table

PAIR_COLUMNS = (
    ("sentence1", "sentence2", "score"),
    ("sentence_A", "sentence_B", "relatedness_score"),
)
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
    for row in _rows(
        data, "blimp", [("sentence_good", "sentence_bad", "UID", "field")]
    ):
        # BLiMP has two spellings of one field
        paradigms[str(row["field"]).replace("/", "_"), str(row["UID"])].append(row)
    by_field: dict[str, list[float]] = defaultdict(list)
    for (field, _), rows in sorted(paradigms.items()):
        sentences = [
            str(row[key])
            for row in rows[:limit]
            for key in ("sentence_good", "sentence_bad")
        ]
        # (pairs,)
        good, bad = (
            np.array([score.log_likelihood for score in model.score(sentences)])
            .reshape(-1, 2)
            .T
        )
        by_field[f"blimp_{field}"].append(float((good > bad).mean()))
    overall = mean(share for shares in by_field.values() for share in shares)
    return {
        "blimp": overall,
        **{name: mean(shares) for name, shares in by_field.items()},
    }


def sts(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the correlations of cosines with the human scores of sentence pairs
    (STS-B, SICK).
    """
    rows = _rows(data, "sts", PAIR_COLUMNS)[:limit]
    *texts, score = next(names for names in PAIR_COLUMNS if set(names) <= set(rows[0]))
    scores = np.array([number_of(row[score]) for row in rows], dtype=np.float64)
    if np.isnan(scores).any():
        place = int(np.flatnonzero(np.isnan(scores))[0])
        what = f"{data}, row {place + 1}: the {score} is not a number"
        received = str(rows[place][score])
        raise LitebertError(
            "LB-992",
            what,
            received=received,
            next=f"correct or remove this row: {data}",
        )
    first, second = (
        model.embed([str(row[name]) for row in rows], normalize=True) for name in texts
    )
    measures = regression_measures(scores, (first * second).sum(1))
    return {"sts_spearman": measures["spearman"], "sts_pearson": measures["pearson"]}


def retrieval(
    model: Model, data: Path, *, limit: int | None = None
) -> dict[str, float]:
    """Return how well questions find their paragraph among all paragraphs of a file, by
    cosine.

    `data` is in SQuAD's layout, or rows with `question` and `context`. The mean
    reciprocal rank counts ranks beyond 10 as 0; recall at k is the share of questions
    found among the first k.
    """
    rows = _rows(data, "retrieval", [("question", "context")])[:limit]
    contexts = list(dict.fromkeys(str(row["context"]) for row in rows))
    number = {context: index for index, context in enumerate(contexts)}
    wanted = np.array([number[str(row["context"])] for row in rows])
    vectors = model.embed(contexts, normalize=True)
    questions = model.embed([str(row["question"]) for row in rows], normalize=True)
    # how many paragraphs are nearer than the wanted one
    ranks = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), MOST_BLOCKED):
        block = slice(start, start + MOST_BLOCKED)
        cosines = questions[block] @ vectors.T
        ranks[block] = (
            cosines > np.take_along_axis(cosines, wanted[block, None], axis=1)
        ).sum(1)
    return {
        "retrieval_mrr": float(np.where(ranks < 10, 1 / (1 + ranks), 0.0).mean()),
        **{f"retrieval_recall_at_{k}": float((ranks < k).mean()) for k in (1, 5, 10)},
    }


def _rows(data: Path, measure: str, columns: Sequence[tuple[str, ...]]) -> list[Row]:
    """Return the rows of a file; all must have the columns of one of the tuples."""
    rows = [row for _, row in open_table(data, has_header=True).rows()]
    needed: set[str] = next(
        (set(names) for names in columns if rows and set(names) <= set(rows[0])), {""}
    )
    if (
        lacking := next((row for row in rows if not needed <= set(row)), None)
    ) is not None or not rows:
        what = f"{data} has no rows for {measure}"
        advice = "litebert evaluate --help"
        received = ", ".join(lacking or ()) or "no rows"
        expected = " or ".join(map(", ".join, columns))
        raise LitebertError(
            "LB-992", what, received=received, expected=expected, next=advice
        )
    return rows


MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "blimp": blimp,
    "sts": sts,
    "retrieval": retrieval,
}
"""The measures of `litebert evaluate --on`; each takes a model, a file, and a limit on
its rows.
"""
