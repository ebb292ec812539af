"""Every attention kernel gives what the formula gives, for all tokens and for selected
query rows.
"""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from litebert.fast.attention import (
    Attend,
    Layout,
    full,
    masked,
    padded,
    rectangles,
)
from litebert.nn import Batch, Visible, attention

LENGTHS = (3, 40, 16, 1, 33, 40, 70, 131, 2)
READ = [0, 3, 43, 59, 60, 93, 132, 333]


def near(query: Tensor, key: Tensor) -> Tensor:
    """Read the neighbors and the first token, as a plug-in's kind of attention may."""
    return ((query - key).abs() <= 5) | (key == 0) | (query == 0)


def _batch(lengths: tuple[int, ...] = LENGTHS) -> Batch:
    ids = torch.randint(
        1, 60, (sum(lengths),), generator=torch.Generator().manual_seed(0)
    )
    return Batch.from_lists([sequence.tolist() for sequence in ids.split(lengths)])


def _rows(num_tokens: int) -> tuple[Tensor, ...]:
    draws = torch.Generator().manual_seed(1)
    return torch.randn(
        3, num_tokens, 2, 8, generator=draws, dtype=torch.float64
    ).unbind(0)


KERNELS: list[tuple[Visible | None, Attend]] = [
    (None, full),
    (None, rectangles),
    (None, padded),
    (near, partial(masked, visible=near)),
]


@pytest.mark.parametrize("queries", [None, READ, [2, 60, 60]])
@pytest.mark.parametrize("lengths", [LENGTHS, (56,) * 6])
@pytest.mark.parametrize(("visible", "attend"), KERNELS)
def test_a_kernel_gives_what_its_formula_gives(
    visible: Visible | None,
    attend: Attend,
    lengths: tuple[int, ...],
    queries: list[int] | None,
) -> None:
    batch = _batch(lengths)
    q, k, v = _rows(336)
    layout = Layout(batch)
    if queries is not None:
        layout = Layout(batch, torch.tensor(queries))
    expected = attention(q, k, v, batch, visible)[layout.queries]
    mixed = attend(q[layout.queries], k, v, layout, 0.0)
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_variable_length_attention_on_cuda_equals_the_formula() -> None:
    torch.manual_seed(0)
    rows = torch.randn(3, 150, 2, 64, device="cuda").bfloat16().unbind(0)
    batch = _batch((100, 3, 47)).to("cuda")
    expected = attention(*(x.float() for x in rows), batch)
    torch.testing.assert_close(
        full(*rows, Layout(batch), 0.0).float(), expected, rtol=0, atol=2e-2
    )


def elements_written_backward(lengths: tuple[int, ...]) -> int:
    """Return how many numbers all results of a backward pass of attention have."""
    rows = _rows(sum(lengths))
    for row in rows:
        row.requires_grad_()
    mixed = full(*rows, Layout(_batch(lengths)), 0.0)

    class Counted(TorchDispatchMode):
        num_elements = 0

        def __torch_dispatch__(
            self,
            func: torch._ops.OpOverload,
            types: object,
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:
            results = func(*args, **(kwargs or {}))
            for result in tree_leaves(results):
                if isinstance(result, Tensor) and not func.is_view:
                    self.num_elements += result.numel()
            return results

    with Counted() as counted:
        mixed.sum().backward()
    return counted.num_elements


def test_the_backward_pass_of_many_lengths_writes_each_row_once() -> None:
    """It would write all rows for each length: a quarter of the time of training on
    texts of 50 lengths.
    """
    lengths = tuple(range(1, 41))  # 820 tokens
    few = elements_written_backward((205,) * 4)
    assert elements_written_backward(lengths) < 2 * few
