"""Training: the step and the loop, checkpoints, logs, estimates, pretraining and fine-tuning."""

from litebert.runs import read_metrics, read_run
from litebert.train.estimate import Estimate, estimate, most_tokens
from litebert.train.log import duration
from litebert.train.pretrain import plan, pretrain
from litebert.train.run import Outcome

__all__ = ["Estimate", "Outcome", "duration", "estimate", "most_tokens", "plan", "pretrain", "read_metrics", "read_run"]
