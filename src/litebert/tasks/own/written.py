"""Answers as a table: the id of each row, the answer, and how probable it and the others are."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from litebert.tasks.kinds.classification import Scores
from litebert.tasks.kinds.family import Answer, AnswerRow, Example, Family


def answer_table(
    family: Family[Example, Answer],
    split: str,
    examples: Sequence[Example],
    answers: Sequence[Answer],
) -> dict[str, str]:
    """Return one CSV file, named after the split, with a line for each example.

    After `id` and `prediction` come the probability of each label (or the score); of choices, that
    of each, by its number from 1; otherwise that of the answer.
    """
    rows = family.rows(examples, answers)
    numbers = [_numbers(row, answer) for row, answer in zip(rows, answers, strict=True)]
    width = max(map(len, numbers), default=0)
    names = {
        "sequence-classification": family.head.labels,
        "multiple-choice": tuple(f"choice {place}" for place in range(1, width + 1)),
    }.get(family.head.kind, ("confidence",))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "prediction", *names])
    for row, values in zip(rows, numbers, strict=True):
        writer.writerow([row.id, row.answer, *values, *[""] * (width - len(values))])
    return {f"{split}.csv": written.getvalue()}


def _numbers(row: AnswerRow, answer: object) -> list[str]:
    values = answer.values if isinstance(answer, Scores) else (row.confidence,)
    return ["" if value is None else f"{value:.6g}" for value in values]
