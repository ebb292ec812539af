"""The network as the paper describes it, on ragged batches.

Axes in annotations and shape comments:
    tokens      all tokens of a batch, end to end
    sequences   the sequences of a batch; `boundaries` is one more
    rows        tokens, or queries, and perhaps some rows beyond the last
    queries     the tokens that the last step computes; `masked` those that are predicted
    hidden      H, the width of the layers
    embed       E, the width of the embeddings
    vocab       V, the pieces of the vocabulary
    heads       attention heads
    head_size   D, the width of one head: H / heads; `size` in comments
    width       a padded length
    starts      the starts of answers whose ends are scored
    outputs     the logits of a task head
    blocks      blocks of tokens in local attention, which read a `span` of neighbours each
"""

from litebert.nn.batch import Batch
from litebert.nn.heads import ConditionalSpanHead, ConditionalSpans, LinearHead
from litebert.nn.init import DTYPES, initialise
from litebert.nn.model import Albert
from litebert.nn.plan import Step, depth_plan
from litebert.nn.task import AlbertForPretraining, AlbertForTask, Network, PretrainingOutput

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
