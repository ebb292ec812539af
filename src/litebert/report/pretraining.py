"""The report of a pretraining run: held-out measures beside those of no learning."""

import math
from collections.abc import Callable, Mapping
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


def _facts(run: RunFolder) -> dict[str, str]:
    """Return what the page says above the results."""
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
    if "sentence_order_accuracy" in last_values(run) and not is_next:
        words = 'order "He opened the door." "Nobody was there."'
        commands.append(run.model_command(words))
    commands.append(run.model_command('embed "A sentence."'))
    return commands


# ---- measures: a curve each, and a table of the first and the last evaluation --------


def last_values(run: RunFolder) -> Mapping[str, float]:
    """Return the measures of the last evaluation; none before there is one."""
    return run.evaluations[-1].values if run.evaluations else {}


def _title(run: RunFolder, measure: "Measure") -> str:
    return measure.title.replace("Sentence order", sentence_task(run))


def _format_of(measure: "Measure") -> Callable[[float], str]:
    return format_share if measure.is_share else format_cell


def _unlearned(run: RunFolder, measure: "Measure") -> Rule | None:
    """Return the level without any learning: a number, or that of another measure."""
    if isinstance(measure.chance, float):
        return Rule("chance", measure.chance)
    level = last_values(run).get(measure.chance or "", math.nan)
    if not math.isfinite(level):
        return None
    return Rule("most common token", level)


def _chart(run: RunFolder, measure: "Measure") -> list[Figure]:
    return chart_of(
        run,
        measure.name,
        _title(run, measure),
        measure.caption,
        _format_of(measure),
        rule=_unlearned(run, measure),
    )


def _results(run: RunFolder, measures: list["Measure"]) -> Section:
    """Return the section on the measures of the first and the last evaluation."""
    ends = run.evaluations[:1] + run.evaluations[-1:]  # which may be the same one
    evaluations = {row.step: row for row in ends}
    rows = list[list[str]]()
    for measure in measures:
        write = _format_of(measure)
        row = [_title(run, measure)]
        for evaluation in evaluations.values():
            row.append(write(evaluation.values.get(measure.name, math.nan)))
        row.append(_unlearned_in_words(run, measure))
        if any(measure.name in e.values for e in evaluations.values()):
            rows.append(row)
    if not rows:
        return Section("Held-out results", ["Nothing was evaluated yet."])
    steps = [f"At step {step:,}" for step in evaluations]
    table = Table(
        ("Measure", *steps, "Without learning"),
        rows,
        "Losses in nats; measured on held-out documents, without dropout",
        "results",
    )
    return Section("Held-out results", sentences(doubts_of(run)), tables=[table])


def _unlearned_in_words(run: RunFolder, measure: "Measure") -> str:
    """Return the level without any learning as a cell of the table."""
    vocabulary = run.settings.get("model.vocab_size")
    if measure.name == "masked_lm_loss" and isinstance(vocabulary, int):
        return f"{format_cell(math.log(vocabulary))}, uniform guess"
    rule = _unlearned(run, measure)
    if rule is None:
        return "-"
    write = _format_of(measure)
    return f"{write(rule.level)}, {rule.label}"
