"""What pretraining predicts: masked words and sentence order, drawn fresh from shards
of tokens.

`sentences` pairs the sentences of a document, `sequences` frames a pair, and `masking`
masks it; `loading` makes any batch from its number, also for mixes of corpora; `workers`
prepares batches ahead. `taught` has texts with a teacher's vectors instead.
"""

from litebert.objectives.loading import CorpusLoader, Loader, LoaderSettings
from litebert.objectives.sentences import NO_LABEL, SentenceObjective
from litebert.objectives.sequences import PretrainingBatch
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
