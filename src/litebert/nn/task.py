"""The encoder with one task head: the networks that are fine-tuned."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn.batch import Batch
from litebert.nn.init import initialise
from litebert.nn.model import Albert, AlbertForPretraining

NEVER = -1e30
"""The logit of a position that may not be chosen (official squad_utils.py L1246)."""


class LinearHead(nn.Module):
    """Dropout, then one linear layer, on pooled vectors or on tokens.

    The official span head has no dropout (squad_utils.py L708), its classifiers have
    (classifier_utils.py L794).
    """

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, head.num_outputs)
        has_dropout = head.kind != "question-answering"
        self.dropout_prob = config.classifier_dropout_prob if has_dropout else 0.0

    def forward(self, read: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows outputs"]:
        """Return the logits of each row."""
        logits: Tensor = self.dense(F.dropout(read, self.dropout_prob, self.training))
        return logits


class ConditionalSpans(NamedTuple):
    """Log-probabilities of starts, of ends given each asked start, and a logit for "no answer"."""

    start: Float[Tensor, "sequences width"]
    end: Float[Tensor, "sequences starts width"]
    no_answer: Float[Tensor, " sequences"]


class ConditionalSpanHead(nn.Module):
    """SQuAD 2.0: ends that depend on the start, and answerability (squad_utils.py L1230-1330).

    Works on padded rectangles; `allowed` is true on [CLS] and on the paragraph.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.start = nn.Linear(size, 1)
        self.end_hidden = nn.Linear(2 * size, size)
        self.end_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.end = nn.Linear(size, 1)
        self.answer_hidden = nn.Linear(2 * size, size)
        self.answer = nn.Linear(size, 1, bias=False)
        self.dropout_prob = config.classifier_dropout_prob

    def forward(
        self,
        hidden: Float[Tensor, "sequences width hidden"],
        allowed: Bool[Tensor, "sequences width"],
        starts: Int[Tensor, "sequences starts"] | int,
    ) -> ConditionalSpans:
        """Score ends after the given starts, or after the so many likeliest ones."""
        start = self.start(hidden).squeeze(-1).masked_fill(~allowed, NEVER).log_softmax(-1)
        chosen = self.likeliest(start, starts) if isinstance(starts, int) else starts
        end = self._ends(hidden, chosen).masked_fill(~allowed[:, None], NEVER).log_softmax(-1)
        return ConditionalSpans(start, end, self._no_answer(hidden, start))

    @staticmethod
    def likeliest(
        start: Float[Tensor, "sequences width"], number: int
    ) -> Int[Tensor, "sequences starts"]:
        """Return the positions of the likeliest starts, best first."""
        return start.topk(min(number, start.shape[1])).indices

    def _ends(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """Apply W [token, start] as two products, so that each token is multiplied only once."""
        rows = torch.arange(len(hidden), device=hidden.device)[:, None]
        for_token, for_start = self.end_hidden.weight.chunk(2, dim=1)
        tokens = F.linear(hidden, for_token, self.end_hidden.bias)
        at_starts = F.linear(hidden[rows, starts], for_start)
        mixed = torch.tanh(tokens[:, None] + at_starts[:, :, None])
        logits: Tensor = self.end(self.end_norm(mixed)).squeeze(-1)
        return logits

    def _no_answer(self, hidden: Tensor, start: Tensor) -> Tensor:
        summed = (start.exp().unsqueeze(-1) * hidden).sum(1)
        mixed = torch.tanh(self.answer_hidden(torch.cat([summed, hidden[:, 0]], dim=-1)))
        dropped = F.dropout(mixed, self.dropout_prob, self.training)
        logits: Tensor = self.answer(dropped).squeeze(-1)
        return logits


class AlbertForTask(nn.Module):
    """The encoder with a task head on its pooled [CLS] or on its tokens.

    With `exits` there is a head after every other step, too: see litebert.fast.exits.

    >>> config = AlbertConfig(vocab_size=10, hidden_size=8, num_attention_heads=2)
    >>> head = HeadConfig(kind="sequence-classification", labels=("no", "yes"))
    >>> network = AlbertForTask(config, head)
    >>> network(Batch.from_lists([[2, 7, 3], [2, 8, 9, 3]])).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        config: AlbertConfig,
        head: HeadConfig,
        *,
        has_exits: bool = False,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.head_config = head
        self.albert = Albert(config, has_pooler=head.is_pooled, dtype=dtype, generator=generator)
        self.head: LinearHead | ConditionalSpanHead = (
            ConditionalSpanHead(config)
            if head.kind == "conditional-question-answering"
            else LinearHead(config, head)
        )
        num_exits = config.num_steps - 1 if has_exits else 0
        self.exits = nn.ModuleList(LinearHead(config, head) for _ in range(num_exits))
        for heads in (self.head, self.exits):
            initialise(heads, std=config.initializer_range, generator=generator)

    @property
    def config(self) -> AlbertConfig:
        """The network's configuration."""
        return self.albert.config

    @property
    def heads(self) -> list[nn.Module]:
        """The head after each step, or the only one."""
        return [*self.exits, self.head]

    def forward(self, batch: Batch) -> Float[Tensor, "rows outputs"]:
        """Return logits: a row a sequence from a pooled head, a row a token from the others.

        Multiple choice gives one logit a sequence; the choices of a question are neighbours. The
        logits of a conditional head depend on starts: see `spans`.
        """
        assert isinstance(self.head, LinearHead), "use spans() with a conditional head"
        if self.head_config.is_pooled:
            read = self.albert.pool(self.albert(batch, read=batch.first_tokens))
        else:
            read = self.albert(batch).float()
        logits: Tensor = self.heads[: self.albert.depth][-1](read)
        return logits

    def spans(
        self,
        batch: Batch,
        allowed: Bool[Tensor, "sequences width"],
        starts: Int[Tensor, "sequences starts"] | int,
    ) -> ConditionalSpans:
        """Apply a conditional head to the batch laid out as a rectangle as wide as `allowed`."""
        assert isinstance(self.head, ConditionalSpanHead), "this head is not conditional"
        hidden = batch.to_padded(self.albert(batch), width=allowed.shape[1])
        spans: ConditionalSpans = self.head(hidden.float(), allowed, starts)
        return spans


Network: TypeAlias = AlbertForPretraining | AlbertForTask
"""What a model folder holds: the encoder with its pretraining heads, or with a task head."""
