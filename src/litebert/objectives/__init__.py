"""What pretraining predicts: sentence order and masked words, drawn fresh from shards of tokens."""

from litebert.objectives.batch import PretrainingBatch, longest_first, of_sequences
from litebert.objectives.instances import EpochPlan, plan_epoch
from litebert.objectives.loader import Loader, evaluation_batches
from litebert.objectives.masking import Masking, mask, num_to_predict, run_length_law
from litebert.objectives.mixed import Mixed, counts_in_cycle, shares
from litebert.objectives.pairs import FramedPair, frame, truncated_sizes
from litebert.objectives.prefetch import prefetch
from litebert.objectives.sentences import SENTENCE_OBJECTIVES, InOrder, Instance, SentenceObjective, sentence_objective
from litebert.objectives.shards import Library, PlainShard, ShardArrays
from litebert.objectives.staged import Batches, Staged
from litebert.objectives.vocabulary import Vocabulary, log_frequencies
from litebert.objectives.windows import WINDOW_PIECES, ShardSizes, Windowed, WindowOrder, estimated_samples

__all__ = [
    "SENTENCE_OBJECTIVES",
    "WINDOW_PIECES",
    "Batches",
    "EpochPlan",
    "FramedPair",
    "InOrder",
    "Instance",
    "Library",
    "Loader",
    "Masking",
    "Mixed",
    "PlainShard",
    "PretrainingBatch",
    "SentenceObjective",
    "ShardArrays",
    "ShardSizes",
    "Staged",
    "Vocabulary",
    "WindowOrder",
    "Windowed",
    "counts_in_cycle",
    "estimated_samples",
    "evaluation_batches",
    "frame",
    "log_frequencies",
    "longest_first",
    "mask",
    "num_to_predict",
    "of_sequences",
    "plan_epoch",
    "prefetch",
    "run_length_law",
    "sentence_objective",
    "shares",
    "truncated_sizes",
]
