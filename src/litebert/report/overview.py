"""A run at a glance: is it done, what was trained, for how long, how fast."""

from __future__ import annotations

import statistics

from litebert.report.record import Record, finite
from litebert.train.log import duration


def status(record: Record) -> str:
    """Say in one sentence whether the run is done."""
    if record.has_model:
        return f"Finished after {record.step:,} steps."
    if record.step == 0:
        return "Not finished: no training step was logged yet."
    return (
        f"Not finished: step {record.step:,} of {record.setting('train.steps')}. "
        "There is no model yet."
    )


def facts_of(record: Record) -> dict[str, str]:
    """Return what a reader wants to know first; figures that are not known are left out."""
    setting = record.setting
    speeds = finite(record.training, "tokens_per_second")
    values = {
        "Network": f"{_preset(record)}{setting('model.num_hidden_layers')} layers of "
        f"{setting('model.hidden_size')}, {setting('model.num_attention_heads')} heads, "
        f"sharing {setting('model.sharing')}",
        "Embedding": f"{setting('model.vocab_size')} tokens x {setting('model.embedding_size')}",
        "Batch": f"{setting('train.batch_size')} sequences of at most "
        f"{setting('objective.max_seq_length')} tokens",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        "Tokens seen": _tokens(record.tokens) if record.tokens else "",
        "Time, evaluations not counted": duration(record.seconds) if record.seconds else "",
        "Median speed": f"{statistics.median(speeds):,.0f} tokens/s" if speeds else "",
        "Notes": f"{len(record.notes):,}, listed below" if record.notes else "",
    }
    return {name: value for name, value in values.items() if value}


def _preset(record: Record) -> str:
    """Name the preset that the origins tell of: `preset mini (recipe laptop)`."""
    words = str(record.origins.get("model.hidden_size", "")).split()
    return f"{words[1]}: " if len(words) > 1 and words[0] == "preset" else ""


def _tokens(count: int) -> str:
    """Write a number of tokens.

    >>> _tokens(78_012_345), _tokens(2_600_000_000)
    ('78.0 million', '2.60 billion')
    """
    return f"{count / 1e9:,.2f} billion" if count >= 1e9 else f"{count / 1e6:,.1f} million"
