"""The loss in pieces is the loss of the whole, and so is its gradient."""

import pytest
import torch
from torch.nn import functional as F

from litebert.tasks.pretraining import _correct, masked_loss


def drawn(rows: int, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    logits = 3 * torch.randn(rows, vocab, generator=generator)
    return logits, torch.randint(vocab, (rows,), generator=generator)


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 100])
def test_bf16_loss_and_gradient_are_those_of_a_float32_copy(rows: int) -> None:
    numbers, labels = drawn(rows, 500)
    ours, theirs = (numbers.bfloat16().requires_grad_() for _ in range(2))

    loss = masked_loss(ours, labels) / rows
    expected = F.cross_entropy(theirs.float(), labels, reduction="sum") / rows
    loss.backward()
    expected.backward()

    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-2, atol=1e-6)


def test_float32_is_computed_as_before() -> None:
    logits, labels = drawn(40, 500)

    assert torch.equal(masked_loss(logits, labels), F.cross_entropy(logits, labels, reduction="sum"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_correct_answers_are_counted_as_argmax_does_ties_included(dtype: torch.dtype) -> None:
    logits, labels = drawn(300, 8)
    logits = (logits / 2).round().to(dtype)  # many equal logits

    assert _correct(logits, labels) == (logits.argmax(-1) == labels).sum()
    assert _correct(logits[:0], labels[:0]) == 0
