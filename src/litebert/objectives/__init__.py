"""What pretraining predicts: masked words and sentence order, drawn fresh from shards of tokens.

`sequences` pairs the sentences of a document, frames and masks them; `sampling` finds any batch by its number, also in
large corpora and mixes, and reads ahead.
"""

from litebert.objectives.sampling import Loader, Samples, Sampling, prefetch
from litebert.objectives.sequences import NO_LABEL, SENTENCE_OBJECTIVES, PretrainingBatch, SentenceObjective

__all__ = [
    "NO_LABEL", "SENTENCE_OBJECTIVES", "Loader", "PretrainingBatch", "Samples", "Sampling", "SentenceObjective",
    "prefetch",
]  # fmt: skip
