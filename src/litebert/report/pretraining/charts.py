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
    "mask_token_loss": "Of the positions that show [MASK] alone. Lower is better.",
    "mask_token_accuracy": "Share of the positions that show [MASK] that are named exactly.",
    "sentence_order_accuracy": "Share of the sentence pairs that are judged right.",
    "hidden_error": "Distance to the teacher's hidden states. Lower is better.",
    "vector_error": "Distance to the teacher's text vectors. Lower is better.",
}


def charts_of(record: Record) -> list[Chart]:
    """Return the figures for which the run has values."""
    sentence_title = f"{sentence_task(record)} accuracy"
    drawn = (
        _chart(record, "masked_lm_loss", "Masked-LM loss", loss),
        _chart(record, "masked_lm_accuracy", "Masked-LM accuracy", share),
        _chart(record, "mask_token_loss", "[MASK] loss", loss),
        _chart(record, "mask_token_accuracy", "[MASK] accuracy", share),
        _chart(record, "sentence_order_accuracy", sentence_title, share),
        _chart(record, "hidden_error", "Hidden-state error", loss),
        _chart(record, "vector_error", "Text-vector error", loss),
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
