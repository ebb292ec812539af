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
        # (sequences, starts)
        chosen = start.topk(starts).indices if isinstance(starts, int) else starts
        end = self._score_ends(hidden, allowed, chosen)
        no_answer = self._score_no_answer(hidden, start)
        return ConditionalSpans(start, chosen, end, no_answer)

    def _score_ends(
        self,
        hidden: Float[Tensor, "sequences width hidden"],
        allowed: Bool[Tensor, "sequences width"],
        chosen: Int[Tensor, "sequences starts"],
    ) -> Float[Tensor, "sequences starts width"]:
        """Return the log-probabilities of ends, given each chosen start."""
        hidden_size = hidden.shape[-1]
        index = chosen.unsqueeze(-1).expand(-1, -1, hidden_size)
        at_starts = hidden.gather(1, index)  # (sequences, starts, hidden)
        # W [token, start] as two products: each token is multiplied only once.
        of_starts = self.end_start(at_starts).unsqueeze(2)
        of_tokens = self.end_token(hidden).unsqueeze(1)
        # (sequences, starts, width, hidden)
        mixed = self.end_norm(torch.tanh(of_tokens + of_starts))
        logits: Tensor = self.end(mixed).squeeze(-1)  # (sequences, starts, width)
        return logits.masked_fill(~allowed.unsqueeze(1), NEVER).log_softmax(-1)

    def _score_no_answer(
        self,
        hidden: Float[Tensor, "sequences width hidden"],
        start: Float[Tensor, "sequences width"],
    ) -> Float[Tensor, " sequences"]:
        """Return the logit for "no answer" from the expected start beside [CLS]."""
        probabilities = start.exp().unsqueeze(-1)
        expected = (probabilities * hidden).sum(1)  # (sequences, hidden)
        at_cls = hidden[:, 0]
        joined = torch.cat([expected, at_cls], -1)
        answer = self.dropout(torch.tanh(self.answer_hidden(joined)))
        logits: Tensor = self.answer(answer).squeeze(-1)
        return logits


def score_spans(
    network: AlbertForTask, batch: Batch, starts: Tensor | int
) -> ConditionalSpans:
    """Apply a conditional head to a batch, laid out as a rectangle; a very narrow one
    has fewer starts.
    """
    width = max(batch.lengths)
    last_tokens = batch.offsets[1:] - 1  # [SEP], in the segment of the context
    is_context = (batch.segments == 1).index_fill(0, last_tokens, False)
    is_cls = batch.positions == 0  # it stands for "no answer"
    allowed = batch.to_padded(is_context | is_cls, width=width)
    hidden = batch.to_padded(network.albert(batch), width=width)
    possible = starts
    if isinstance(starts, int):
        possible = min(starts, width)
    spans: ConditionalSpans = network.head(hidden.float(), allowed, possible)
    return spans
