"""A fine-tuning run at a glance: which task, from which model, on how many examples."""

from __future__ import annotations

from litebert.files import Json, read_json
from litebert.report.overview import effort
from litebert.runs import Record, Result


def facts_of(record: Record, result: Result | None) -> dict[str, str]:
    """Return the main figures; unknown figures are omitted."""
    setting = record.setting
    values = {
        "Task": setting("task.name"),
        "Started from": start_of(record),
        "Network": _network(record),
        "New, not pretrained": ", ".join(_modules(result)) if result else "",
        "Trained on": _counted(record.data.get("training examples")),
        "Evaluated on": "; ".join(
            f"{name}: {_counted(record.data[f'{name} examples'])}" for name in splits_of(record)
        ),
        "Batch": f"{setting('train.batch_size')}, at most {setting('task.max_length')} pieces each",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        "Seed": str(record.settings.get("train.seed", "unknown")),
        **effort(record),
    }
    return {name: value for name, value in values.items() if value}


def start_of(record: Record) -> str:
    """Name the model that a run started from, or whose shape alone it took."""
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
