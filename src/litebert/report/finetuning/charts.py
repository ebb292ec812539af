"""Which figures a fine-tuning run has: loss, key measure, rates by step."""

from __future__ import annotations

from collections.abc import Sequence

from litebert.report.chart import Chart, Rule, left_out, lines_of, rate_charts
from litebert.report.finetuning.confusion import are_labels
from litebert.report.finetuning.overview import splits_of
from litebert.report.finetuning.results import Answers, accuracy_name, commonest
from litebert.report.result import number
from litebert.runs import Record, Result

MOST_MEASURES = 2
"""Measures drawn until one is chosen to decide."""


def charts_of(
    record: Record, result: Result | None, answers: Answers, labels: Sequence[str]
) -> list[Chart]:
    """Return the figures for which the run has values."""
    loss = Chart(
        "Training loss",
        f"{left_out(record, 'loss')}Lower is better.",
        lines_of(record, "loss"),
        "{:.3g}".format,
    )
    rules = baselines(answers, labels)
    held_out = [
        _chart(record, name, rules.get(name, ())) for name in measures_drawn(record, result)
    ]
    return [chart for chart in (loss, *held_out, *rate_charts(record)) if chart.lines]


def measures_drawn(record: Record, result: Result | None) -> list[str]:
    """Name the key measure on each held-out set, or the first measures of an unfinished run."""
    if result is None:
        return [*record.evaluations[-1].values][:MOST_MEASURES] if record.evaluations else []
    splits = splits_of(record)
    base = result.key_measure.removeprefix(f"{splits[0]}_") if splits else result.key_measure
    names = (f"{split}_{base}" for split in splits)
    return [result.key_measure] if len(splits) < 2 else list(names)


def baselines(answers: Answers, labels: Sequence[str]) -> dict[str, tuple[Rule, ...]]:
    """Return what always answering the commonest label gets, by the name of each accuracy."""
    return {
        accuracy_name(split, answers): (Rule("commonest label", commonest(rows)[1]),)
        for split, rows in answers.items()
        if are_labels(rows, labels)
    }


def _chart(record: Record, name: str, rules: tuple[Rule, ...]) -> Chart:
    caption = f"{left_out(record, name)}Higher is better."
    return Chart(f"Held-out {name}", caption, lines_of(record, name), number, rules)
