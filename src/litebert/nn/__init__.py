"""The network as the paper describes it, on ragged batches, and nothing else: what makes it fast is `litebert.fast`.

Axes in annotations and shape comments, here and in the packages above:
    tokens      all tokens of a batch, end to end
    sequences   the sequences of a batch; `boundaries` is one more
    queries     the tokens whose last states are read; `masked`: those that are predicted
    rows        tokens or queries, in `fast` with rows of zeros behind them
    hidden      H, the width of the layers
    embed       E, the width of the embeddings
    vocab       V, the pieces of the vocabulary
    heads       attention heads
    head_size   D, the width of one head: H / heads; `size` in comments
    width       the length of a padded sequence
    starts      the starts of answers whose ends are scored
    outputs     the logits of a task head
    blocks      blocks of tokens in local attention; each reads a `span` of neighbours
"""

from litebert.nn.batch import Batch, by_length, device_of, filled, moved, pooled, sequence_of
from litebert.nn.heads import PRETRAINING_HEADS, AlbertForPretraining, AlbertForTask, LinearHead, Network
from litebert.nn.model import ACTIVATIONS, Albert, AttentionBlock, FeedForwardBlock, Visible, attention, depth_plan

__all__ = [
    "ACTIVATIONS", "PRETRAINING_HEADS", "Albert", "AlbertForPretraining", "AlbertForTask", "AttentionBlock", "Batch",
    "FeedForwardBlock", "LinearHead", "Network", "Visible", "attention", "by_length", "depth_plan", "device_of",
    "filled", "moved", "pooled", "sequence_of",
]  # fmt: skip
