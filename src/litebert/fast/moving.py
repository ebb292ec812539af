"""Operations that do not make the host wait for a GPU."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from litebert.nn.batch import Batch


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Move a tensor to a device; from pinned memory a GPU copies while the host continues."""
    is_to_gpu = torch.device(device).type == "cuda" and tensor.device.type == "cpu"
    return tensor.pin_memory().to(device, non_blocking=True) if is_to_gpu else tensor.to(device)


def mean_by_sequence(rows: Float[Tensor, "tokens ..."], batch: Batch) -> Float[Tensor, "sequences ..."]:
    """Return the mean of the rows of each sequence."""
    sums = rows.new_zeros(len(batch.lengths), *rows.shape[1:])
    sums = sums.index_add(0, sequence_of(batch), rows)
    return sums / batch.offsets.diff().view(-1, *[1] * (rows.ndim - 1))


def sequence_of(batch: Batch) -> Int[Tensor, " tokens"]:
    """Return the index of each token's sequence; the result's size is known, so nothing waits."""
    numbers = torch.arange(len(batch.lengths), device=batch.offsets.device)
    return numbers.repeat_interleave(batch.offsets.diff(), output_size=len(batch.ids))
