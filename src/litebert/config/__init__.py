"""Configuration: the schema, the named networks, and reading with origins."""

from litebert.config.curriculum import EarlyConfig, ElasticConfig, MiningConfig, RampConfig
from litebert.config.finetune import FinetuneConfig, TaskConfig, TaskDataConfig, TeacherConfig
from litebert.config.head import HEADS, HeadConfig, HeadKind, HeadRecord, kind_of_class, numbered_labels
from litebert.config.load import (
    Resolved,
    Schema,
    Setting,
    Settings,
    describe,
    difference,
    flattened,
    resolve,
    settings_from_toml,
    settings_from_words,
    without_retired,
)
from litebert.config.origin import Origin, OriginKind
from litebert.config.presets import PRESETS, preset
from litebert.config.schema import (
    ATTENTION_KINDS,
    AlbertConfig,
    Backend,
    DataConfig,
    DistilConfig,
    ObjectiveConfig,
    OptimConfig,
    Precision,
    PretrainConfig,
    TrainConfig,
)

__all__ = [
    "ATTENTION_KINDS",
    "HEADS",
    "PRESETS",
    "AlbertConfig",
    "Backend",
    "DataConfig",
    "DistilConfig",
    "EarlyConfig",
    "ElasticConfig",
    "FinetuneConfig",
    "HeadConfig",
    "HeadKind",
    "HeadRecord",
    "MiningConfig",
    "ObjectiveConfig",
    "OptimConfig",
    "Origin",
    "OriginKind",
    "Precision",
    "PretrainConfig",
    "RampConfig",
    "Resolved",
    "Schema",
    "Setting",
    "Settings",
    "TaskConfig",
    "TaskDataConfig",
    "TeacherConfig",
    "TrainConfig",
    "describe",
    "difference",
    "flattened",
    "kind_of_class",
    "numbered_labels",
    "preset",
    "resolve",
    "settings_from_toml",
    "settings_from_words",
    "without_retired",
]
