"""What a run was told, on what it ran, from what it learnt: rows of tables."""

from __future__ import annotations

import json
from dataclasses import dataclass

from litebert.config import DataConfig, PretrainConfig, describe, flattened
from litebert.files import Json
from litebert.report.record import Record

_LONGEST_VALUE = 300


@dataclass(frozen=True)
class SettingRow:
    """One setting of a run beside its default of today."""

    name: str
    value: str
    default: str
    origin: str
    meaning: str

    @property
    def is_changed(self) -> bool:
        """Whether the run did not use the default."""
        return self.value != self.default


def setting_rows(record: Record) -> list[SettingRow]:
    """Return every setting of a run; one that is unknown today has no default."""
    meanings = {name: meaning for name, _, meaning in describe(PretrainConfig)}
    defaults = flattened(PretrainConfig(data=DataConfig(corpus=""))) | {"data.corpus": "required"}
    return [
        SettingRow(
            name=name,
            value=written(value),
            default=written(defaults.get(name, "unknown")),
            origin=written(record.origins.get(name, "unknown")),
            meaning=meanings.get(name, "not a setting of this version"),
        )
        for name, value in record.settings.items()
    ]


def environment_rows(record: Record) -> list[tuple[str, str]]:
    """Return what the run ran on."""
    values: dict[str, Json] = {"litebert": record.version, **record.environment}
    return [(name, "none" if value is None else written(value)) for name, value in values.items()]


def data_rows(record: Record) -> list[tuple[str, str]]:
    """Return what the run learnt from, counts and hashes."""
    return [
        (name, f"{value:,}" if isinstance(value, int) else written(value))
        for name, value in record.data.items()
    ]


def written(value: Json) -> str:
    """Write a value as in a recipe, a long one cut short.

    >>> written(20_000), written(1e-12), written("lamb"), written(True), written(None)
    ('20000', '1e-12', 'lamb', 'true', 'unset')
    """
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
