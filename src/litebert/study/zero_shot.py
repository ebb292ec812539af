"""What a pretrained model knows without fine-tuning: BLiMP, sentence similarity, retrieval."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import mean

import numpy as np

from litebert.errors import LitebertError
from litebert.inference.model import Model
from litebert.metrics import regression_measures
from litebert.reading.tables import Row
from litebert.tasks.own.table import open_table

_PAIR_COLUMNS = (("sentence1", "sentence2", "score"), ("sentence_A", "sentence_B", "relatedness_score"))
_MOST_BLOCKED = 4_096  # questions whose cosines with all paragraphs are in memory at once


def blimp(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the share of minimal pairs whose good sentence is likelier, overall and by field.

    Sentences are compared by pseudo-log-likelihood (Salazar et al., 2020); BLiMP is that of Warstadt et al. (2020). All
    paradigms (`UID`) have the same weight; `limit` takes the first pairs of each.
    """
    seen, rows = Counter[object](), list[Row]()
    for row in _rows(data):
        seen[row["UID"]] += 1
        if limit is None or seen[row["UID"]] <= limit:
            rows.append(row)
    sentences = [str(row[key]) for row in rows for key in ("sentence_good", "sentence_bad")]
    good, bad = np.array([score.log_likelihood for score in model.score(sentences)]).reshape(-1, 2).T
    by_paradigm: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row, is_right in zip(rows, good > bad, strict=True):
        # BLiMP has two spellings of one field
        by_paradigm[str(row["field"]).replace("/", "_"), str(row["UID"])].append(float(is_right))
    by_field: dict[str, list[float]] = defaultdict(list)
    for (field, _), answers in sorted(by_paradigm.items()):
        by_field[f"blimp_{field}"].append(mean(answers))
    overall = mean(share for shares in by_field.values() for share in shares)
    return {"blimp": overall, **{name: mean(shares) for name, shares in by_field.items()}}


def sts(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the correlations of cosines with human scores of sentence pairs (STS-B, SICK)."""
    rows = list(islice(_rows(data), limit))
    names = next((names for names in _PAIR_COLUMNS if rows and set(names) <= set(rows[0])), None)
    if names is None:
        raise LitebertError(
            "LB-992",
            f"{data} has no scored sentence pairs",
            received=", ".join(rows[0]) if rows else "no rows",
            expected=" or ".join(map(", ".join, _PAIR_COLUMNS)),
            next="litebert evaluate MODEL --on sts --data STS-B/dev.tsv",
        )
    first, second = (model.embed([str(row[name]) for row in rows], normalize=True) for name in names[:2])
    try:
        scores = np.array([float(str(row[names[2]])) for row in rows])
    except ValueError as error:
        what = f"{data} has a pair without a number in column {names[2]}"
        raise LitebertError("LB-993", what, received=str(error), next="choose a split with labels") from error
    measures = regression_measures(scores, (first * second).sum(1))
    return {"sts_spearman": measures["spearman"], "sts_pearson": measures["pearson"]}


def retrieval(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return how well questions find their paragraph among all paragraphs of a file, by cosine.

    `data` is in SQuAD's layout, or rows with `question` and `context`. The mean reciprocal rank
    counts ranks beyond 10 as 0; recall at k is the share of questions found among the first k.
    """
    rows = list(islice(_rows(data), limit))
    contexts = list(dict.fromkeys(str(row["context"]) for row in rows))
    number = {context: index for index, context in enumerate(contexts)}
    wanted = np.array([number[str(row["context"])] for row in rows])
    vectors = model.embed(contexts, normalize=True)
    questions = model.embed([str(row["question"]) for row in rows], normalize=True)
    ranks = np.zeros(len(rows), dtype=np.int64)  # how many paragraphs are nearer than the wanted one
    for start in range(0, len(rows), _MOST_BLOCKED):
        block = slice(start, start + _MOST_BLOCKED)
        cosines = questions[block] @ vectors.T
        ranks[block] = (cosines > np.take_along_axis(cosines, wanted[block, None], axis=1)).sum(1)
    return {
        "retrieval_mrr": float(np.where(ranks < 10, 1 / (1 + ranks), 0.0).mean()),
        **{f"retrieval_recall_at_{k}": float((ranks < k).mean()) for k in (1, 5, 10)},
    }


def _rows(data: Path) -> Iterator[Row]:
    return (row for _, row in open_table(data, has_header=True).rows())


MEASURES: dict[str, Callable[..., dict[str, float]]] = {"blimp": blimp, "sts": sts, "retrieval": retrieval}
"""What `litebert evaluate --on` measures; each takes a model, a file, and a limit on its rows."""
