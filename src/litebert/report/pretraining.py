"""The report of a pretraining run: held-out measures beside those of no learning."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from litebert.report.figures import Figure, Rule, chart_of, rate_charts
from litebert.report.page import Section
from litebert.report.parts import Parts, curves, sentences
from litebert.report.results import doubts_of, network_of, sentence_task
from litebert.report.tables import Table, format_cell, format_share
from litebert.runs import RunFolder

if TYPE_CHECKING:
    from litebert.tasks.heads import Measure


def pretraining_parts(run: RunFolder) -> Parts:
    """Return the parts of the page of a pretraining run."""
    # imports torch, which only a page needs
    from litebert.tasks.heads import pretraining_measures

    measures = [measure for measure in pretraining_measures() if measure.title]
    figures = list[Figure]()
    for measure in measures:
        figures += _chart(run, measure)
    figures += rate_charts(run)
    return Parts(
        facts=_facts(run),
        sections=[_results(run, measures), curves(figures, run)],
        shell=_shell(run),
        python='fill("The cat sat on the [MASK].")',
    )


def _last_values(run: RunFolder) -> Mapping[str, float]:
    return run.evaluations[-1].values if run.evaluations else {}


def _facts(run: RunFolder) -> dict[str, str]:
    setting = run.setting
    return {
        "Network": (
            f"{network_of(run)}, {setting('model.num_attention_heads')} heads, sharing"
            f" {setting('model.sharing')}"
        ),
        "Embedding": (
            f"{setting('model.vocab_size')} tokens x {setting('model.embedding_size')}"
        ),
        "Batch": (
            f"{setting('train.batch_size')} sequences of at most"
            f" {setting('objective.max_seq_length')} tokens"
        ),
        "Optimizer": (
            f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}"
        ),
    }


def _shell(run: RunFolder) -> list[str]:
    commands = [run.model_command('fill "The cat sat on the [MASK]."')]
    is_next = run.settings.get("objective.sentence") == "next"
    if "sentence_order_accuracy" in _last_values(run) and not is_next:
        words = 'order "He opened the door." "Nobody was there."'
        commands.append(run.model_command(words))
    commands.append(run.model_command('embed "A sentence."'))
    return commands


# ---- measures: a curve each, and a table of the first and the last evaluation --------


def _title(run: RunFolder, measure: "Measure") -> str:
    return measure.title.replace("Sentence order", sentence_task(run))


def _unlearned(run: RunFolder, measure: "Measure") -> Rule | None:
    """Return the level without any learning: a number, or that of another measure."""
    if isinstance(measure.chance, float):
        return Rule("chance", measure.chance)
    level = _last_values(run).get(measure.chance or "", math.nan)
    return Rule("most common token", level) if math.isfinite(level) else None


def _chart(run: RunFolder, measure: "Measure") -> list[Figure]:
    write = format_share if measure.is_share else format_cell
    rule = _unlearned(run, measure)
    title = _title(run, measure)
    return chart_of(run, measure.name, title, measure.caption, write, rule=rule)


def _results(run: RunFolder, measures: list["Measure"]) -> Section:
    first_and_last = (*run.evaluations[:1], *run.evaluations[-1:])
    values_by_step = {row.step: row.values for row in first_and_last}
    rows = list[tuple[str, ...]]()
    for measure in measures:
        write = format_share if measure.is_share else format_cell
        levels = [
            values.get(measure.name, math.nan) for values in values_by_step.values()
        ]
        if any(measure.name in values for values in values_by_step.values()):
            reached = [write(level) for level in levels]
            rows.append((_title(run, measure), *reached, _in_words(run, measure)))
    if not rows:
        return Section("Held-out results", ["Nothing was evaluated yet."])
    steps = [f"At step {step:,}" for step in values_by_step]
    table = Table(
        ("Measure", *steps, "Without learning"),
        rows,
        "Losses in nats; measured on held-out documents, without dropout",
        "results",
    )
    return Section("Held-out results", sentences(doubts_of(run)), tables=[table])


def _in_words(run: RunFolder, measure: "Measure") -> str:
    """Return the level without any learning as a cell of the table."""
    vocabulary = run.settings.get("model.vocab_size")
    if measure.name == "masked_lm_loss" and isinstance(vocabulary, int):
        return f"{format_cell(math.log(vocabulary))}, uniform guess"
    rule = _unlearned(run, measure)
    if rule is None:
        return "-"
    write = format_share if measure.is_share else format_cell
    return f"{write(rule.level)}, {rule.label}"
