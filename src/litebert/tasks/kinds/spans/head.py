"""The head of SQuAD 2.0: an end depends on its start, and a question may have no answer
(official squad_utils.py L1230-1330).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.family import NEVER


class ConditionalSpans(NamedTuple):
    """Log-probabilities of starts and of ends given each chosen start; a logit for "no
    answer".
    """

    start: Float[Tensor, "sequences width"]
    chosen: Int[Tensor, "sequences starts"]
    end: Float[Tensor, "sequences starts width"]
    no_answer: Float[Tensor, " sequences"]


class ConditionalSpanHead(nn.Module):
    """Score each token as a start, each pair of start and token as an end, and
    answerability.
    """

    def __init__(self, config: AlbertConfig, _head: HeadConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.start = nn.Linear(size, 1)
        self.end_hidden = nn.Linear(2 * size, size)  # of a token and a start, joined
        self.end_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.end = nn.Linear(size, 1)
        self.answer_hidden = nn.Linear(2 * size, size)
        self.answer = nn.Linear(size, 1, bias=False)
        self.dropout: nn.Module = nn.Dropout(config.classifier_dropout_prob)

    def end_token(self, hidden: Tensor) -> Tensor:
        """Apply the half of `end_hidden` that reads a token."""
        of_token, _ = self.end_hidden.weight.chunk(2, dim=1)
        return F.linear(hidden, of_token, self.end_hidden.bias)

    def end_start(self, hidden: Tensor) -> Tensor:
        """Apply the half of `end_hidden` that reads a start."""
        _, of_start = self.end_hidden.weight.chunk(2, dim=1)
        return F.linear(hidden, of_start)

    def forward(
        self,
        hidden: Float[Tensor, "sequences width hidden"],
        allowed: Bool[Tensor, "sequences width"],
        starts: Int[Tensor, "sequences starts"] | int,
    ) -> ConditionalSpans:
        """Score ends for the given starts; if `starts` is a number, for that many of
        the likeliest starts, best first.

        `allowed` is true on [CLS] and on the context.
        """
        start = self.start(hidden).squeeze(-1)  # (sequences, width)
        start = start.masked_fill(~allowed, NEVER).log_softmax(-1)
        chosen = start.topk(starts).indices if isinstance(starts, int) else starts
        index = chosen.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        # W [token, start] as two products: each token is multiplied only once.
        # (sequences, starts, hidden)
        at_starts = self.end_start(hidden.gather(1, index))
        # (sequences, starts, width, hidden)
        mixed = torch.tanh(self.end_token(hidden)[:, None] + at_starts[:, :, None])
        end = self.end(self.end_norm(mixed)).squeeze(-1)  # (sequences, starts, width)
        end = end.masked_fill(~allowed[:, None], NEVER).log_softmax(-1)
        # the state of the expected start, beside that of [CLS]
        summed = (start.exp().unsqueeze(-1) * hidden).sum(1)  # (sequences, hidden)
        both = torch.cat([summed, hidden[:, 0]], -1)
        answer = self.dropout(torch.tanh(self.answer_hidden(both)))
        no_answer = self.answer(answer).squeeze(-1)  # (sequences,)
        return ConditionalSpans(start, chosen, end, no_answer)


def score_spans(
    network: AlbertForTask, batch: Batch, starts: Tensor | int
) -> ConditionalSpans:
    """Apply a conditional head to a batch, laid out as a rectangle; a very narrow one
    has fewer starts.
    """
    width = max(batch.lengths)
    is_context = batch.segments == 1  # and the last [SEP]
    is_context = is_context.index_fill(0, batch.offsets[1:] - 1, False)
    is_cls = batch.positions == 0  # it stands for "no answer"
    allowed = batch.to_padded(is_context | is_cls, width=width)
    hidden = batch.to_padded(network.albert(batch), width=width)
    if isinstance(starts, int):
        starts = min(starts, width)
    spans: ConditionalSpans = network.head(hidden.float(), allowed, starts)
    return spans
