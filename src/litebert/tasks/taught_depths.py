"""Elastic depth with self-distillation: shallow depths imitate the predictions of the full one."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from litebert.tasks.base import Loss
from litebert.tasks.pretraining import Pretraining, PretrainingWork, at_depth


class TaughtDepths(Pretraining):
    """A training step with a random depth also trains the full depth, which teaches it.

    One pass gives both: the same heads read the states after the random depth and after the last
    step. The full depth learns from the text; the other from the text and from the full depth's
    distributions (as Born-Again and BYOT exits do, arXiv 1905.08094), without a gradient to these.
    """

    def loss(self, work: PretrainingWork) -> Loss:
        """Return the loss of the full depth and, if the step has another depth, of that one."""
        network, depth = self.network, self.network.albert.depth
        if depth == self._deepest or not network.training:
            return super().loss(work)
        first, masked = work.batch.first_tokens, work.masked_positions
        with at_depth(network.albert, self._deepest):
            states = list(network.albert.states(work.batch, torch.cat([first, masked])))
        full = network.read(states[-1][: len(first)], states[-1][len(first) :])
        shallow = network.read(states[depth][first], states[depth][masked])
        error = F.kl_div(
            shallow.masked_lm.float().log_softmax(-1),
            full.masked_lm.detach().float().log_softmax(-1),
            reduction="sum",
            log_target=True,
        )
        base, exit_ = self.loss_of(work, full), self.loss_of(work, shallow)
        taught = self._elastic.teaching * error / max(1, work.step_masked)
        return Loss(base.total + exit_.total + taught, base.sums)
