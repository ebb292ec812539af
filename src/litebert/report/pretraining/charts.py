"""The overview of a pretraining run: what was trained, the next commands, and its figures."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

from litebert.report.chart import Chart, Rule, left_out, lines_of, rate_charts
from litebert.report.overview import effort
from litebert.report.pretraining.results import loss, sentence_task, share
from litebert.runs import Record

if TYPE_CHECKING:
    from litebert.tasks.base import Measure


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
    """Return the figures of all measures for which the run has values."""
    # torch comes with them, which only a page needs
    from litebert.tasks.distillation import DISTILLATION_MEASURES
    from litebert.tasks.pretraining import pretraining_measures

    drawn = [_chart(record, each) for each in (*pretraining_measures(), *DISTILLATION_MEASURES) if each.title]
    return [chart for chart in (*drawn, *rate_charts(record)) if chart.lines]


def _chart(record: Record, measure: Measure) -> Chart:
    return Chart(
        title=measure.title.replace("Sentence order", sentence_task(record)),
        caption=f"{left_out(record, measure.name)}{measure.caption}",
        lines=lines_of(record, measure.name),
        written=share if measure.is_share else loss,
        rules=_rules(record, measure),
        is_share=measure.is_share,
    )


def _rules(record: Record, measure: Measure) -> tuple[Rule, ...]:
    """Return the line of what is reached without any learning."""
    if isinstance(measure.chance, float):
        return (Rule("chance", measure.chance),)
    shares = [row.values.get(measure.chance or "", math.nan) for row in record.evaluations]
    return tuple(Rule("commonest token", each) for each in shares[-1:] if math.isfinite(each))
