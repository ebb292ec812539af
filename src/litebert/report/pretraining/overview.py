"""A pretraining run at a glance: what was trained, for how long, and what to type next."""

from __future__ import annotations

import shlex

from litebert.report.overview import effort
from litebert.runs import Record


def facts_of(record: Record) -> dict[str, str]:
    """Return the main figures; unknown figures are omitted."""
    setting = record.setting
    return {
        "Network": f"{network_of(record)}, {setting('model.num_attention_heads')} heads, "
        f"sharing {setting('model.sharing')}",
        "Embedding": f"{setting('model.vocab_size')} tokens x {setting('model.embedding_size')}",
        "Batch": f"{setting('train.batch_size')} sequences of at most "
        f"{setting('objective.max_seq_length')} tokens",
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
    """Return the commands that use a finished model, the verbs it was trained for."""
    model = shlex.quote(str(record.folder / "model"))
    lines = [f'litebert fill "The cat sat on the [MASK]." --model {model}']
    if record.trains_sentences and record.settings.get("objective.sentence") != "next":
        lines.append(f'litebert order "He opened the door." "Nobody was there." --model {model}')
    return [*lines, f'litebert embed "A sentence." --model {model}']


def python_lines(record: Record) -> list[str]:
    """Return the same in Python."""
    return [
        "import litebert",
        f"model = litebert.load({str(record.folder / 'model')!r})",
        'print(model.fill("The cat sat on the [MASK]."))',
    ]
