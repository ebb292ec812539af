"""Configuration: the schema, the named networks, and reading with origins."""

from litebert.config.head import HEADS, HeadConfig, HeadKind, HeadRecord, kind_of_class, numbered_labels
from litebert.config.load import (
    Origin,
    Resolved,
    Schema,
    Setting,
    Settings,
    describe,
    difference,
    flattened,
    refused,
    resolve,
    settings_from_toml,
    settings_from_words,
)
from litebert.config.schema import (
    ATTENTION_KINDS,
    PRESETS,
    AlbertConfig,
    AttentionKind,
    Backend,
    DataConfig,
    DistilConfig,
    EarlyConfig,
    FinetuneConfig,
    ObjectiveConfig,
    OptimConfig,
    Precision,
    PretrainConfig,
    Problem,
    Section,
    TaskConfig,
    TaskDataConfig,
    TeacherConfig,
    TrainConfig,
    preset,
)

__all__ = [
    "ATTENTION_KINDS", "HEADS", "PRESETS", "AlbertConfig", "AttentionKind", "Backend", "DataConfig", "DistilConfig",
    "EarlyConfig", "FinetuneConfig", "HeadConfig", "HeadKind", "HeadRecord",
    "ObjectiveConfig", "OptimConfig", "Origin", "Precision", "PretrainConfig", "Problem", "Resolved", "Schema",
    "Section", "Setting", "Settings", "TaskConfig", "TaskDataConfig", "TeacherConfig", "TrainConfig", "describe",
    "difference", "flattened", "kind_of_class", "numbered_labels", "preset", "refused", "resolve",
    "settings_from_toml", "settings_from_words",
]  # fmt: skip
