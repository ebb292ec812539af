"""The networks that are trained: the encoder with its pretraining heads, or with a task head."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn.batch import Batch
from litebert.nn.heads import MaskedLMHead, SentenceOrderHead, task_head
from litebert.nn.init import initialise
from litebert.nn.model import Albert


class PretrainingOutput(NamedTuple):
    """Logits of the two objectives."""

    masked_lm: Float[Tensor, "masked vocab"]
    sentence_order: Float[Tensor, "sequences 2"]


class AlbertForPretraining(nn.Module):
    """The encoder with its masked-LM and sentence-order heads (run_pretraining.py L294-361)."""

    def __init__(
        self,
        config: AlbertConfig,
        *,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.albert = Albert(config, dtype=dtype, generator=generator)
        self.masked_lm = MaskedLMHead(config)
        self.sentence_order = SentenceOrderHead(config)
        for head in (self.masked_lm, self.sentence_order):
            initialise(head, std=config.initializer_range, generator=generator)

    def forward(self, batch: Batch, masked_positions: Int[Tensor, " masked"]) -> PretrainingOutput:
        """Return masked-LM logits at `masked_positions` (indices into the flat tokens) only."""
        first = batch.first_tokens
        hidden = self.albert(batch, torch.cat([first, masked_positions]))
        return self.read(hidden[: len(first)], hidden[len(first) :])

    def read(
        self,
        first: Float[Tensor, "sequences hidden"],
        masked: Float[Tensor, "masked hidden"],
    ) -> PretrainingOutput:
        """Return the logits of both heads: from first tokens, and from the masked ones."""
        return PretrainingOutput(
            masked_lm=self.masked_lm(masked, self.albert.embedding.word.weight),
            sentence_order=self.sentence_order(self.albert.pool(first)),
        )


class AlbertForTask(nn.Module):
    """The encoder with a task head on its pooled [CLS] or on its tokens.

    With `has_exits` there is a head after every other step, too.

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
        self.config, self.head_config = config, head
        self.albert = Albert(config, has_pooler=head.is_pooled, dtype=dtype, generator=generator)
        self.head = task_head(config, head)
        num_exits = config.num_steps - 1 if has_exits else 0
        self.exits = nn.ModuleList(task_head(config, head) for _ in range(num_exits))
        for heads in (self.head, self.exits):
            initialise(heads, std=config.initializer_range, generator=generator)

    @property
    def heads(self) -> list[nn.Module]:
        """The head after each step, or the only one."""
        return [*self.exits, self.head]

    def forward(self, batch: Batch) -> Float[Tensor, "rows outputs"]:
        """Return logits: a row a sequence from a pooled head, a row a token from the others.

        Multiple choice gives one logit a sequence; the choices of a question are neighbours.
        """
        if self.head_config.is_pooled:
            rows = self.albert.pool(self.albert(batch, batch.first_tokens))
        else:
            rows = self.albert(batch).float()
        logits: Tensor = self.heads[: self.albert.depth][-1](rows)
        return logits


Network: TypeAlias = AlbertForPretraining | AlbertForTask
"""What a model folder holds: the encoder with its pretraining heads, or with a task head."""
