"""All settings, with their defaults and ranges, one page a subject:

section      what a group of settings is made of
network      the shape of the network, and the presets
heads        the head of a fine-tuned model, with its labels
inference    what is chosen when a model is loaded
training     what every run has: the optimizer, the steps, the batches
pretraining  a pretraining run
finetuning   a fine-tuning run
"""

from litebert.config.finetuning import (
    DROPOUTS,
    OWN_FILES,
    FinetuneConfig,
    FinetuneOptimConfig,
    FinetuneTrainConfig,
    StartConfig,
    TaskConfig,
    TaskDataConfig,
    TeacherConfig,
    without_effect,
)
from litebert.config.heads import (
    HeadConfig,
    Splitting,
    have_same_layers,
    kinds_of_head,
    numbered_labels,
)
from litebert.config.inference import (
    Backend,
    DeviceName,
    InferencePrecision,
    Pooling,
    Precision,
)
from litebert.config.network import (
    ALIASES,
    PRESETS,
    Activation,
    AlbertConfig,
    Sharing,
    preset,
)
from litebert.config.pretraining import (
    DataConfig,
    DistilConfig,
    EarlyConfig,
    ObjectiveConfig,
    PretrainConfig,
    PretrainStart,
)
from litebert.config.section import (
    ContradictionError,
    Option,
    Options,
    Section,
    Weight,
)
from litebert.config.training import OptimConfig, Schedule, TrainConfig

__all__ = [
    "ALIASES",
    "DROPOUTS",
    "OWN_FILES",
    "PRESETS",
    "Activation",
    "AlbertConfig",
    "Backend",
    "ContradictionError",
    "DataConfig",
    "DeviceName",
    "DistilConfig",
    "EarlyConfig",
    "FinetuneConfig",
    "FinetuneOptimConfig",
    "FinetuneTrainConfig",
    "HeadConfig",
    "InferencePrecision",
    "ObjectiveConfig",
    "OptimConfig",
    "Option",
    "Options",
    "Pooling",
    "Precision",
    "PretrainConfig",
    "PretrainStart",
    "Schedule",
    "Section",
    "Sharing",
    "Splitting",
    "StartConfig",
    "TaskConfig",
    "TaskDataConfig",
    "TeacherConfig",
    "TrainConfig",
    "Weight",
    "have_same_layers",
    "kinds_of_head",
    "numbered_labels",
    "preset",
    "without_effect",
]
