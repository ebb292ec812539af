"""Attention relations: how alike the queries, keys and values of a text's tokens are.

A student learns them from the last step of its teacher (MiniLMv2, arXiv 2012.15828, section 3.2).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.fast.moving import sequence_of
from litebert.nn import Albert, Batch


def projections(albert: Albert, inputs: Tensor) -> Tensor:
    """Return query, key and value of the last step, side by side, shape (tokens, 3 hidden).

    `inputs` (tokens, hidden) is what that step reads.
    """
    block = albert.get_submodule(f"attention.{albert.plan[-1].attention}")
    weight, bias = block.projection()  # type: ignore[operator]
    return F.linear(inputs, weight.to(inputs.dtype), bias.to(inputs.dtype))


def relation_error(ours: Tensor, theirs: Tensor, *, batch: Batch, has_target: Tensor, heads: int) -> Tensor:
    """Return KL(teacher || student), summed over tokens, the mean over all relations and heads.

    A relation is softmax(A A^T / sqrt(head size)) within a text, where A is query, key or value.
    `ours` and `theirs` have shape (tokens, 3 hidden), `has_target` (tokens,); tokens without a
    target are excluded from both sides of the relations.
    """
    rows = (sequence_of(batch), batch.positions)
    shape = (len(batch.lengths), max(batch.lengths))
    seen = torch.zeros(shape, dtype=torch.bool, device=ours.device)
    seen[rows] = has_target

    def relations(flat: Tensor) -> Tensor:
        padded = flat.new_zeros(*shape, flat.shape[1]).index_put(rows, flat)
        split = padded.view(*shape, 3, heads, -1).permute(0, 2, 3, 1, 4)
        alike: Tensor = split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5
        return F.log_softmax(alike.masked_fill(~seen[:, None, None, None, :], -1e4), dim=-1)

    student, teacher = relations(ours.float()), relations(theirs.float())
    errors = F.kl_div(student, teacher, log_target=True, reduction="none").sum(-1).mean((1, 2))
    return errors[seen].sum()
