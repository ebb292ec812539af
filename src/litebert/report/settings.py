"""Settings, machine and data of a run: rows of tables."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import BaseModel

from litebert.config import DataConfig, FinetuneConfig, PretrainConfig, TaskConfig, describe, flattened
from litebert.config.finetune import StartConfig
from litebert.files import Json
from litebert.runs import Record
from litebert.runs.run import Kind

_LONGEST_VALUE = 300
_EXAMPLES: dict[Kind, BaseModel] = {
    "pretraining": PretrainConfig(data=DataConfig(corpus="")),
    # model_construct does not validate: the defaults have no data, which validation would refuse.
    "fine-tuning": FinetuneConfig.model_construct(task=TaskConfig(name=""), model=StartConfig(start="")),
}
"""A configuration of each kind, with only the required settings set."""


@dataclass(frozen=True)
class SettingRow:
    """A setting of a run and its default in this version."""

    name: str
    value: str
    default: str
    origin: str
    meaning: str

    @property
    def is_changed(self) -> bool:
        """Whether the value of the run is not the default."""
        return self.value != self.default


def setting_rows(record: Record) -> list[SettingRow]:
    """Return every setting of a run; one that this version does not have has no default."""
    example = _EXAMPLES[record.kind]
    described = describe(type(example))
    meanings = {setting.name: setting.description for setting in described}
    required = {each.name: each.default for each in described if each.default == "required"}
    defaults = flattened(example) | required
    return [
        SettingRow(
            name=name,
            value=written(value),
            default=written(defaults.get(name, "unknown")),
            origin=written(str(record.origins.get(name, "unknown"))),
            meaning=meanings.get(name, "not a setting of this version"),
        )
        for name, value in record.settings.items()
    ]


def environment_rows(record: Record) -> list[tuple[str, str]]:
    """Return what the run ran on."""
    values: dict[str, Json] = {"litebert": record.version, **record.environment}
    return [(name, "none" if value is None else written(value)) for name, value in values.items()]


def data_rows(record: Record) -> list[tuple[str, str]]:
    """Return the data that the run learnt from, with counts and hashes."""
    return [(name, f"{value:,}" if isinstance(value, int) else written(value)) for name, value in record.data.items()]


def written(value: Json) -> str:
    """Return a value as written in a recipe; a long one is truncated.

    >>> written(20_000), written(1e-12), written("lamb"), written(True), written(None)
    ('20000', '1e-12', 'lamb', 'true', 'unset')
    """
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
