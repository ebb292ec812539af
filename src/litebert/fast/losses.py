"""The loss over a large vocabulary, and the count of right answers."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.device import device_at

# in float32 at a time: for 16,000 pieces they take 2 MB, which fit a core's cache
LOSS_ROWS = 32


def masked_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy, summed in float32, of logits (masked, vocab) in any
    precision.
    """
    is_on_cpu = device_at(logits.device).is_cpu
    if not is_on_cpu or logits.dtype == torch.float32:
        return F.cross_entropy(logits.float(), labels, reduction="sum")
    loss: Tensor = _LossInPieces.apply(logits, labels)  # type: ignore[no-untyped-call]
    return loss


class _LossInPieces(torch.autograd.Function):
    """Cross-entropy of a few rows at a time, without a float32 copy of all logits;
    backward recomputes softmax.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        parts = torch.split(logits, LOSS_ROWS)
        # log(sum(exp(logits))) of each row, (masked,)
        norms = torch.cat([part.float().logsumexp(-1) for part in parts])
        of_labels = logits.gather(-1, labels[:, None]).squeeze(-1)  # (masked,)
        ctx.save_for_backward(logits, labels, norms)
        return (norms - of_labels).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, labels, norms = ctx.saved_tensors
        [scale] = gradients
        result = torch.empty_like(logits)  # softmax - onehot(label)
        for first in range(0, len(logits), LOSS_ROWS):
            rows = slice(first, first + LOSS_ROWS)
            # (LOSS_ROWS, vocab)
            softmax = (logits[rows].float() - norms[rows, None]).exp_()
            label = labels[rows, None]
            softmax.scatter_add_(-1, label, softmax.new_full(label.shape, -1.0))
            result[rows].copy_(softmax.mul_(scale))
        return result, None


def count_right(logits: Tensor, labels: Tensor) -> Tensor:
    """Count the rows whose largest logit (in a tie, the first) is that of the label.

    On a CPU argmax is ten times as slow as amax, so it is computed only for rows that
    may count.
    """
    scores = logits.detach()
    if not device_at(scores.device).is_cpu:
        return (scores.argmax(-1) == labels).sum()
    # a missing label is below 0
    of_labels = scores.gather(-1, labels[:, None].clamp(min=0)).squeeze(-1)
    # most rows are wrong, and need no argmax
    candidates = (of_labels == scores.amax(-1)).nonzero().squeeze(-1)
    return (scores[candidates].argmax(-1) == labels[candidates]).sum()
