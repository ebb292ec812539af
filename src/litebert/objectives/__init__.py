"""What pretraining predicts: masked words and sentence order, drawn fresh from shards
of tokens.

`sequences` pairs, frames and masks the sentences of a document; `loading` makes any
batch from its number, also for mixes of corpora; `workers` prepares batches ahead.
"""

from litebert.objectives.loading import CorpusLoader, Loader, LoaderSettings
from litebert.objectives.sequences import (
    NO_LABEL,
    PretrainingBatch,
    SentenceObjective,
)
from litebert.objectives.workers import prefetch

__all__ = [
    "NO_LABEL",
    "CorpusLoader",
    "Loader",
    "LoaderSettings",
    "PretrainingBatch",
    "SentenceObjective",
    "prefetch",
]
