"""The network, on ragged batches.

Axes in annotations: `tokens` all tokens of a batch end to end, `sequences`, `masked` the positions
to predict, `hidden` H, `embed` E, `vocab` V, `heads`, `head_size`, `width` a padded length.
"""

from litebert.nn.batch import Batch
from litebert.nn.init import initialise
from litebert.nn.model import DTYPES, Albert, AlbertForPretraining, PretrainingOutput
from litebert.nn.plan import Step, depth_plan
from litebert.nn.task import (
    AlbertForTask,
    ConditionalSpanHead,
    ConditionalSpans,
    LinearHead,
    Network,
)

__all__ = [
    "DTYPES",
    "Albert",
    "AlbertForPretraining",
    "AlbertForTask",
    "Batch",
    "ConditionalSpanHead",
    "ConditionalSpans",
    "LinearHead",
    "Network",
    "PretrainingOutput",
    "Step",
    "depth_plan",
    "initialise",
]
