"""The scores that the paper and the official README report for each task, for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedScore:
    """One score in percent, and its source (arXiv 1909.11942 v6, README of google-research).

    `model` is the preset of this row, or a description if it is none; `row` is the row's own name.
    """

    task: str
    measure: str
    percent: float
    model: str
    table: str
    row: str
    split: str = "dev"


def published(task: str, *, model: str | None = None) -> list[PublishedScore]:
    """Return the published scores of a task, for one model or for all.

    >>> [score.percent for score in published("sst2", model="base-v2")]
    [92.9]
    """
    return [score for score in PUBLISHED if score.task == task and (model or score.model) == score.model]


_FIVE = (
    ("squad", "f1"),
    ("squad", "exact"),
    ("squad2", "f1"),
    ("squad2", "exact"),
    ("mnli", "accuracy"),
    ("sst2", "accuracy"),
    ("race", "accuracy"),
)
_GLUE = (
    ("mnli", "accuracy"),
    ("qnli", "accuracy"),
    ("qqp", "accuracy"),
    ("rte", "accuracy"),
    ("sst2", "accuracy"),
    ("mrpc", "accuracy"),
    ("cola", "matthews"),
    ("stsb", "pearson"),
)
_SQUAD = _FIVE[:4]
_RACE = (("race", "accuracy"), ("race", "accuracy_middle"), ("race", "accuracy_high"))

_README = "README L33-44"
_LONG, _LONGER = "xxlarge-v1, 1M steps", "xxlarge-v1"

_Row = tuple[str, str, tuple[float, ...]]
_Block = tuple[str, str, tuple[tuple[str, str], ...], tuple[_Row, ...]]
_BLOCKS: tuple[_Block, ...] = (
    (
        "Table 2",  # its xxlarge has 24 layers, as Table 13 shows; the published one has 12
        "dev",
        _FIVE,
        (
            ("BERT base", "bert-base", (90.4, 83.2, 80.4, 77.6, 84.5, 92.8, 68.2)),
            ("BERT large", "bert-large", (92.2, 85.5, 85.0, 82.2, 86.6, 93.0, 73.9)),
            ("ALBERT base", "base-v1", (89.3, 82.3, 80.0, 77.1, 81.6, 90.3, 64.0)),
            ("ALBERT large", "large-v1", (90.6, 83.9, 82.3, 79.4, 83.5, 91.7, 68.5)),
            ("ALBERT xlarge", "xlarge-v1", (92.5, 86.1, 86.1, 83.1, 86.4, 92.4, 74.8)),
            ("ALBERT xxlarge", "xxlarge-v1, 24 layers, 125k steps", (94.1, 88.3, 88.1, 85.1, 88.0, 95.2, 82.3)),
        ),
    ),
    ("Table 13", "dev", _FIVE, (("12", "xxlarge-v1, 125k steps", (94.0, 88.1, 88.3, 85.3, 87.8, 95.4, 82.5)),)),
    (
        _README,
        "dev",
        _FIVE,
        (
            ("V2 ALBERT-base", "base-v2", (90.2, 83.2, 82.1, 79.3, 84.6, 92.9, 66.8)),
            ("V2 ALBERT-large", "large-v2", (91.8, 85.2, 84.9, 81.8, 86.5, 94.9, 75.2)),
            ("V2 ALBERT-xlarge", "xlarge-v2", (92.9, 86.4, 87.9, 84.1, 87.9, 95.4, 80.7)),
            ("V2 ALBERT-xxlarge", "xxlarge-v2", (94.6, 89.1, 89.8, 86.9, 90.6, 96.8, 86.8)),
            ("V1 ALBERT-xxlarge", _LONGER, (94.8, 89.3, 90.2, 87.4, 90.8, 96.9, 86.5)),
        ),
    ),
    (
        "Table 9",
        "dev",
        _GLUE,
        (
            ("BERT-large", "BERT-large", (86.6, 92.3, 91.3, 70.4, 93.2, 88.0, 60.6, 90.0)),
            ("XLNet-large", "XLNet-large", (89.8, 93.9, 91.8, 83.8, 95.6, 89.2, 63.6, 91.8)),
            ("RoBERTa-large", "RoBERTa-large", (90.2, 94.7, 92.2, 86.6, 96.4, 90.9, 68.0, 92.4)),
            ("ALBERT (1M)", _LONG, (90.4, 95.2, 92.0, 88.1, 96.8, 90.2, 68.7, 92.7)),
            ("ALBERT (1.5M)", _LONGER, (90.8, 95.3, 92.2, 89.2, 96.9, 90.9, 71.4, 93.0)),
        ),
    ),
    (
        "Table 10",
        "dev",
        _SQUAD,
        (
            ("BERT-large", "BERT-large", (90.9, 84.1, 81.8, 79.0)),
            ("XLNet", "XLNet-large", (94.5, 89.0, 88.8, 86.1)),
            ("RoBERTa", "RoBERTa-large", (94.6, 88.9, 89.4, 86.5)),
            ("ALBERT (1M)", _LONG, (94.8, 89.2, 89.9, 87.2)),
            ("ALBERT (1.5M)", _LONGER, (94.8, 89.3, 90.2, 87.4)),
        ),
    ),
    (
        "Table 10",
        "test",
        _RACE,
        (
            ("BERT-large", "BERT-large", (72.0, 76.6, 70.1)),
            ("XLNet", "XLNet-large", (81.8, 85.5, 80.2)),
            ("RoBERTa", "RoBERTa-large", (83.2, 86.5, 81.3)),
            ("ALBERT (1M)", _LONG, (86.0, 88.2, 85.1)),
            ("ALBERT (1.5M)", _LONGER, (86.5, 89.0, 85.5)),
        ),
    ),
)


def _scores() -> Iterator[PublishedScore]:
    for table, split, columns, rows in _BLOCKS:
        for row, model, values in rows:
            for (task, measure), percent in zip(columns, values, strict=True):
                yield PublishedScore(task, measure, percent, model, table, row, split)


PUBLISHED = tuple(_scores())
