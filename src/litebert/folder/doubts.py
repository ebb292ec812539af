"""What the files of a model cannot say for certain."""

from __future__ import annotations

from litebert.config import AlbertConfig


def doubts(config: AlbertConfig) -> tuple[str, ...]:
    """Return a sentence for each setting whose published values disagree."""
    notes = []
    if config.hidden_act == "gelu":
        notes.append("hidden_act gelu is the erf form")
    return tuple(notes)
