"""The overview of a fine-tuning run: its task, model and examples, and its figures by step."""

from __future__ import annotations

from collections.abc import Sequence

from litebert.files import Json, read_json
from litebert.report.chart import Chart, Rule, left_out, lines_of, rate_charts
from litebert.report.finetuning.confusion import are_labels
from litebert.report.finetuning.results import AnswersBySplit, accuracy_name, commonest
from litebert.report.overview import effort
from litebert.report.table import number
from litebert.runs import Record, Result

MOST_MEASURES = 2
"""How many measures are drawn as long as no key measure is known."""


def charts_of(record: Record, result: Result | None, answers: AnswersBySplit, labels: Sequence[str]) -> list[Chart]:
    """Return the figures for which the run has values."""
    loss = Chart(
        "Training loss", f"{left_out(record, 'loss')}Lower is better.", lines_of(record, "loss"), "{:.3g}".format
    )
    rules = baselines(answers, labels)
    held_out = [_chart(record, name, rules.get(name, ())) for name in measures_drawn(record, result)]
    return [chart for chart in (loss, *held_out, *rate_charts(record)) if chart.lines]


def measures_drawn(record: Record, result: Result | None) -> list[str]:
    """Name the key measure on each held-out set, or the first measures of an unfinished run."""
    if result is None:
        return [*record.evaluations[-1].values][:MOST_MEASURES] if record.evaluations else []
    splits = splits_of(record)
    base = result.key_measure.removeprefix(f"{splits[0]}_") if splits else result.key_measure
    names = (f"{split}_{base}" for split in splits)
    return [result.key_measure] if len(splits) < 2 else list(names)


def baselines(answers: AnswersBySplit, labels: Sequence[str]) -> dict[str, tuple[Rule, ...]]:
    """Return the accuracy of always answering the commonest label, by the name of the measure."""
    return {
        accuracy_name(split, answers): (Rule("commonest label", commonest(rows)[1]),)
        for split, rows in answers.items()
        if are_labels(rows, labels)
    }


def _chart(record: Record, name: str, rules: tuple[Rule, ...]) -> Chart:
    caption = f"{left_out(record, name)}Higher is better."
    return Chart(f"Held-out {name}", caption, lines_of(record, name), number, rules)


def facts_of(record: Record, result: Result | None) -> dict[str, str]:
    """Return the main figures; unknown figures are omitted."""
    setting = record.setting
    values = {
        "Task": setting("task.name"),
        "Started from": start_of(record),
        "Network": _network(record),
        "New, not pretrained": ", ".join(_modules(result)) if result else "",
        "Trained on": _counted(record.data.get("training examples")),
        "Evaluated on": "; ".join(f"{name}: {_counted(record.data[f'{name} examples'])}" for name in splits_of(record)),
        "Batch": f"{setting('train.batch_size')}, at most {setting('task.max_length')} pieces each",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        "Seed": str(record.settings.get("train.seed", "unknown")),
        **effort(record),
    }
    return {name: value for name, value in values.items() if value}


def start_of(record: Record) -> str:
    """Name the model that a run started from, or of which it took only the shape."""
    is_random = record.settings.get("model.random") is True
    return f"{'random weights, shaped as ' if is_random else ''}{record.setting('model.start')}"


def splits_of(record: Record) -> list[str]:
    """Name the held-out sets of a run, the one that decides first."""
    counted = (name.removesuffix(" examples") for name in record.data if name.endswith(" examples"))
    return [name for name in counted if name != "training"]


def _network(record: Record) -> str:
    path = record.folder / "model" / "config.json"
    table = read_json(path, command=f"ls {path.parent}") if path.exists() else {}
    shape = [table.get(name) for name in ("num_hidden_layers", "hidden_size")]
    return "" if None in shape else f"{shape[0]} layers of {shape[1]}"


def _modules(result: Result) -> list[str]:
    return sorted({name.rpartition(".")[0] or name for name in result.fresh})


def _counted(value: Json) -> str:
    return f"{value:,} examples" if isinstance(value, int) else ""
