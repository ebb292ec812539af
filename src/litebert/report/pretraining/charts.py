"""Which figures a pretraining run has."""

from __future__ import annotations

import math
from collections.abc import Callable

from litebert.report.chart import Chart, Rule, left_out, lines_of, rate_charts
from litebert.report.pretraining.results import CHANCE, loss, sentence_task, share
from litebert.runs import Record

_CAPTIONS = {
    "masked_lm_loss": "Lower is better.",
    "masked_lm_accuracy": "Share of the masked tokens that are named exactly.",
    "sentence_order_accuracy": "Share of the sentence pairs that are judged right.",
}


def charts_of(record: Record) -> list[Chart]:
    """Return the figures for which the run has values."""
    sentence_title = f"{sentence_task(record)} accuracy"
    drawn = (
        _chart(record, "masked_lm_loss", "Masked-LM loss", loss),
        _chart(record, "masked_lm_accuracy", "Masked-LM accuracy", share),
        _chart(record, "sentence_order_accuracy", sentence_title, share),
        *rate_charts(record),
    )
    return [chart for chart in drawn if chart.lines]


def _chart(record: Record, name: str, title: str, written: Callable[[float], str]) -> Chart:
    return Chart(
        title=title,
        caption=f"{left_out(record, name)}{_CAPTIONS[name]}",
        lines=lines_of(record, name),
        written=written,
        rules=_rules(record, name),
        is_share=written is share,
    )


def _rules(record: Record, name: str) -> tuple[Rule, ...]:
    if name == "sentence_order_accuracy":
        return (Rule("chance", CHANCE),)
    if name == "masked_lm_accuracy":
        shares = [row.values.get("masked_lm_baseline", math.nan) for row in record.evaluations]
        return tuple(Rule("commonest token", each) for each in shares[-1:] if math.isfinite(each))
    return ()
