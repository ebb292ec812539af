"""What pretraining predicts: masked words and sentence order, drawn fresh from shards
of tokens.

`sequences` pairs, frames and masks the sentences of a document; `sampling` makes any
batch from its number, also for large corpora and mixes, and prefetches.
"""

from litebert.objectives.sampling import Loader, Samples, Sampling, prefetch
from litebert.objectives.sequences import (
    NO_LABEL,
    PretrainingBatch,
    SentenceObjective,
)

__all__ = [
    "NO_LABEL",
    "Loader",
    "PretrainingBatch",
    "Samples",
    "Sampling",
    "SentenceObjective",
    "prefetch",
]
