"""The loss over a large vocabulary, in slices, and the count of right answers."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.fast.losses import LOSS_ROWS, count_right, masked_loss

NUM_ROWS = [1, LOSS_ROWS, LOSS_ROWS + 1, 3 * LOSS_ROWS + 4]
VOCAB_SIZE = 500


def logits_and_labels(num_rows: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(num_rows)
    logits = 3 * torch.randn(num_rows, VOCAB_SIZE, generator=draws)
    labels = torch.randint(VOCAB_SIZE, (num_rows,), generator=draws)
    return logits, labels


@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_the_loss_in_float32_is_the_cross_entropy(num_rows: int) -> None:
    logits, labels = logits_and_labels(num_rows)
    expected = F.cross_entropy(logits, labels, reduction="sum")
    assert torch.equal(masked_loss(logits, labels), expected)


@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_loss_and_gradient_in_bf16_are_those_of_a_float32_copy(num_rows: int) -> None:
    logits, labels = logits_and_labels(num_rows)
    in_slices = logits.bfloat16().requires_grad_()
    loss = masked_loss(in_slices, labels) / num_rows
    loss.backward()

    copied = logits.bfloat16().requires_grad_()
    expected = F.cross_entropy(copied.float(), labels, reduction="sum") / num_rows
    expected.backward()

    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(in_slices.grad, copied.grad, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_right_answers_are_counted_as_argmax_does_ties_included(
    num_rows: int, dtype: torch.dtype
) -> None:
    logits, labels = logits_and_labels(num_rows)
    tied = (logits / 2).round().to(dtype)
    # every third row has its label among the largest
    for row in range(0, num_rows, 3):
        tied[row, labels[row]] = tied[row].max()
    expected = (tied.argmax(-1) == labels).sum()
    assert count_right(tied, labels) == expected
