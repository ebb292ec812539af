"""Replaced-token detection with one network (ELECTRA, arXiv 2003.10555, section 2).

The first steps of the network fill the masks; then all of its steps tell which words are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert import rng
from litebert.fast.moving import mean_by_sequence
from litebert.nn import Batch
from litebert.nn.heads import PretrainingOutput
from litebert.tasks.base import Loss, device_of
from litebert.tasks.pretraining import Pretraining, PretrainingWork, at_depth


class ReplacedTokens(Pretraining):
    """Masked words at a part of the depth, wrong words and sentence order at full depth.

    A token's score is the product of its word vector with the masked-LM head's vector, without the
    bias (as in Electric, arXiv 2012.08561). This needs no new weights, so the written model is like
    any other.
    """

    sum_names = (*Pretraining.sum_names, "detection_loss", "detection_correct", "replaced", "read")
    _draws: torch.Generator | None = None

    def logits(self, work: PretrainingWork) -> PretrainingOutput:
        """Return the logits after the first steps; there only the masked words are trained."""
        assert self._replaced.depth is not None
        with at_depth(self.network.albert, self._replaced.depth):
            return super().logits(work)

    def loss_of(self, work: PretrainingWork, logits: PretrainingOutput) -> Loss:
        """Return the loss of the masked words, and of detection once the masks are filled."""
        network, batch = self.network, work.batch
        filled = batch.ids.clone()
        filled[work.masked_positions] = self._drawn(logits.masked_lm)
        true = batch.ids.clone()
        true[work.masked_positions] = work.masked_ids
        seen: Batch = replace(batch, ids=filled)
        with at_depth(network.albert, network.config.num_steps):
            hidden = network.albert(seen)
        vectors = network.masked_lm.embedded(hidden).float()
        scores = (vectors * network.albert.embedding.word.weight[filled]).sum(-1)
        is_true = (filled == true).float()
        losses = F.binary_cross_entropy_with_logits(scores, is_true, reduction="none")
        detection = mean_by_sequence(losses, batch)
        first = hidden[batch.first_tokens]
        order = network.sentence_order(network.albert.pool(first))
        base = super().loss_of(work, logits._replace(sentence_order=order))
        share = detection.sum() / work.step_sequences
        correct = mean_by_sequence(((scores > 0) == (is_true > 0)).float(), batch)
        replaced = mean_by_sequence(1 - is_true, batch)
        count = detection.new_tensor(len(detection))
        extra = (detection.sum(), correct.sum(), replaced.sum(), count)
        sums = torch.stack([value.detach().double() for value in extra])
        return Loss(base.total + self._replaced.weight * share, torch.cat([base.sums, sums]))

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Add the measures of detection; the baseline always answers "not replaced"."""
        *_, loss, correct, replaced, read = sums
        return super().measures(sums) | {
            "detection_loss": loss / (read or 1.0),
            "detection_accuracy": correct / (read or 1.0),
            "detection_baseline": 1 - replaced / (read or 1.0),
        }

    def evaluate(self) -> dict[str, float]:
        """Measure, filling the masks with the same random draws in every evaluation."""
        seed = rng.torch_seed(self._train.seed, "replaced", 0)
        self._draws = torch.Generator(device_of(self.network)).manual_seed(seed)
        values = super().evaluate()
        self._draws = None
        return values

    @torch.no_grad()
    def _drawn(self, logits: Tensor) -> Tensor:
        """Draw a word for each mask; in training from the step's random stream."""
        chances = logits.float().softmax(-1)
        return torch.multinomial(chances, 1, generator=self._draws).squeeze(-1)
