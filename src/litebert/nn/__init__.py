"""The network as the paper describes it, on ragged batches. The code that makes it fast
is in `litebert.fast`.

Axes in annotations and shape comments, here and in the packages above:
    tokens      all tokens of a batch, end to end
    sequences   the sequences of a batch; `boundaries` has one entry more
    queries     the tokens whose last states are needed; `masked` are those to be predicted
    rows        tokens or queries; in `fast`, rows of zeros may follow them
    hidden      H, the width of the layers
    embed       E, the width of the embeddings
    vocab       V, the number of pieces in the vocabulary
    heads       attention heads
    head_size   D, the width of one head: H / heads; `size` in comments
    width       the length of a padded sequence
    starts      candidate starts of an answer, for each of which ends are scored
    outputs     the logits of a task head
"""

from litebert.nn.batch import (
    Batch,
    group_by_length,
    pad_rows,
    pool_rows,
    sequence_of,
)
from litebert.nn.heads import (
    USUAL_HEADS,
    AlbertForPretraining,
    AlbertForTask,
    HeadContext,
    LinearHead,
    MaskedLMHead,
    Network,
    TaskHead,
)
from litebert.nn.model import (
    ACTIVATIONS,
    Albert,
    AttentionBlock,
    FeedForwardBlock,
    Visible,
    attention,
    depth_plan,
)

__all__ = [
    "ACTIVATIONS",
    "USUAL_HEADS",
    "Albert",
    "AlbertForPretraining",
    "AlbertForTask",
    "AttentionBlock",
    "Batch",
    "FeedForwardBlock",
    "HeadContext",
    "LinearHead",
    "MaskedLMHead",
    "Network",
    "TaskHead",
    "Visible",
    "attention",
    "depth_plan",
    "group_by_length",
    "pad_rows",
    "pool_rows",
    "sequence_of",
]
