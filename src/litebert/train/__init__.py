"""Training: steps, checkpoints, logs, runs on disk."""

from litebert.train.estimate import Estimate, estimate
from litebert.train.log import duration, read_metrics
from litebert.train.pretrain import plan, pretrain
from litebert.train.run import Outcome, read_run

__all__ = [
    "Estimate",
    "Outcome",
    "duration",
    "estimate",
    "plan",
    "pretrain",
    "read_metrics",
    "read_run",
]
