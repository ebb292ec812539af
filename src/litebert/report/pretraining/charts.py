"""The overview of a pretraining run: what was trained, the next commands, and its figures."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable

from litebert.report.chart import Chart, Rule, left_out, lines_of, rate_charts
from litebert.report.overview import effort
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


def facts_of(record: Record) -> dict[str, str]:
    """Return the main figures; unknown figures are omitted."""
    setting = record.setting
    return {
        "Network": f"{network_of(record)}, {setting('model.num_attention_heads')} heads, "
        f"sharing {setting('model.sharing')}",
        "Embedding": f"{setting('model.vocab_size')} tokens x {setting('model.embedding_size')}",
        "Batch": f"{setting('train.batch_size')} sequences of at most {setting('objective.max_seq_length')} tokens",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        **effort(record),
    }


def network_of(record: Record) -> str:
    """Return the preset and the shape of a network in a few words."""
    layers, size = record.setting("model.num_hidden_layers"), record.setting("model.hidden_size")
    return f"{_preset(record)}{layers} layers of {size}"


def _preset(record: Record) -> str:
    """Name the preset that the shape came from."""
    origin = record.origins.get("model.hidden_size")
    return f"{origin.detail}: " if origin and origin.kind == "preset" else ""


def shell_lines(record: Record) -> list[str]:
    """Return commands that use a finished model, with the verbs that it was trained for."""
    model = shlex.quote(str(record.folder / "model"))
    lines = [f'litebert fill "The cat sat on the [MASK]." --model {model}']
    if record.trains_sentences and record.settings.get("objective.sentence") != "next":
        lines.append(f'litebert order "He opened the door." "Nobody was there." --model {model}')
    return [*lines, f'litebert embed "A sentence." --model {model}']


def python_lines(record: Record) -> list[str]:
    """Return the Python code that does the same."""
    return [
        "import litebert",
        f"model = litebert.load({str(record.folder / 'model')!r})",
        'print(model.fill("The cat sat on the [MASK]."))',
    ]


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
