"""Tasks: training, evaluation and prediction behind one protocol."""

from litebert.tasks.base import Loss, Task
from litebert.tasks.pretraining import Pretraining, PretrainingWork, micro_batches

__all__ = ["Loss", "Pretraining", "PretrainingWork", "Task", "micro_batches"]
