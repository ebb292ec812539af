"""How well the task was learnt: last step and best evaluation side by side, never mixed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from litebert.report.finetuning.confusion import are_labels
from litebert.report.markup import Html, paragraph, section, table
from litebert.report.table import number
from litebert.runs import Record, Result
from litebert.runs.answers import Answered

AnswersBySplit = Mapping[str, Sequence[Answered]]


def results(record: Record, result: Result | None, answers: AnswersBySplit, labels: Sequence[str]) -> Html:
    """Return the measures, what they mean, and the measures of a model that learnt nothing."""
    if result is None:
        return section("Result", *_so_far(record))
    last, best = result.last, result.best
    headings = ("Measure", f"Last step, {last.step:,}", f"Best evaluation, step {best.step:,}")
    rows = [
        (_marked(name, result), number(value), number(best.measures.get(name, math.nan)))
        for name, value in last.measures.items()
    ]
    lines = [*_two_columns(result), *(_doubts(result, answers, labels))]
    caption = "Measured on held-out examples, without dropout"
    return section("Result", *map(paragraph, lines), table(caption, headings, rows, kind="numbers"))


def commonest(rows: Sequence[Answered]) -> tuple[str, float]:
    """Return the label that most examples have, and their share."""
    label, count = Counter(row.expected for row in rows).most_common(1)[0]
    return label, count / len(rows)


def accuracy_name(split: str, answers: AnswersBySplit) -> str:
    """Name the accuracy of a held-out set: where there are several, it begins with the set's."""
    return f"{split}_accuracy" if len(answers) > 1 else "accuracy"


def _so_far(record: Record) -> list[Html]:
    if not record.evaluations:
        return [paragraph("Nothing was evaluated yet.")]
    row = record.evaluations[-1]
    words = "The run is not finished; its best evaluation is chosen when it is."
    cells = [(name, number(value)) for name, value in row.values.items() if name != "step"]
    headings = ("Measure", f"At step {row.step:,}")
    return [paragraph(words), table("The last evaluation so far", headings, cells, kind="numbers")]


def _marked(name: str, result: Result) -> str:
    return f"{name}, key measure" if name == result.key_measure else name


def _two_columns(result: Result) -> list[str]:
    count = result.num_evaluations
    return [
        "The last step is what training ended with (model/). The best evaluation is that with "
        f"the highest {result.key_measure} of {count:,} (best/): it was chosen on the examples "
        "that it is measured on, which flatters it. Compare each with figures chosen likewise."
    ]


def _doubts(result: Result, answers: AnswersBySplit, labels: Sequence[str]) -> list[str]:
    """Say what an accuracy is worth, compared with no learning and with chance."""
    lines = []
    for split, rows in answers.items():
        accuracy = result.last.measures.get(accuracy_name(split, answers))
        if accuracy is None:
            continue
        error = 2 * math.sqrt(accuracy * (1 - accuracy) / len(rows))
        lines.append(
            f"At the last step {accuracy:.1%} of {split} are right"
            f"{_unlearnt(accuracy, rows) if are_labels(rows, labels) else ''}. With {len(rows):,} "
            f"examples, differences below {100 * error:.1f} points may be chance (two standard "
            "errors)."
        )
    return lines


def _unlearnt(accuracy: float, rows: Sequence[Answered]) -> str:
    label, share = commonest(rows)
    gain = "" if accuracy > share else ": no gain over that"
    return f"; always answering '{label}', its commonest label, gets {share:.1%}{gain}"
