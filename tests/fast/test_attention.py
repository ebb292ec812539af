"""Every attention kernel gives what the formula gives, for all tokens and for selected
query rows.
"""

from functools import partial

import pytest
import torch
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.fast.attention import (
    Attend,
    Layout,
    attend_of,
    full,
    local,
    masked,
    padded,
    rectangles,
)
from litebert.nn import AttentionBlock, Batch, attention

LENGTHS = (3, 40, 16, 1, 33, 40, 70, 131, 2)
READ = [0, 3, 43, 59, 60, 93, 132, 333]
LOCAL = [
    AlbertConfig(attention="local", attention_window=window)
    for window in (1, 5, 32, 40, 300)
]


def _batch(lengths: tuple[int, ...] = LENGTHS) -> Batch:
    ids = torch.randint(
        1, 60, (sum(lengths),), generator=torch.Generator().manual_seed(0)
    )
    return Batch.from_lists([each.tolist() for each in ids.split(lengths)])


def _rows(num_tokens: int) -> tuple[Tensor, ...]:
    draws = torch.Generator().manual_seed(1)
    return torch.randn(
        3, num_tokens, 2, 8, generator=draws, dtype=torch.float64
    ).unbind(0)


def test_local_attention_reads_neighbours_and_the_first_token_which_reads_all() -> None:
    visible = AttentionBlock(
        AlbertConfig(attention="local", attention_window=1)
    ).visible
    place = torch.arange(4)
    assert visible(place[:, None], place).int().tolist() == [
        [1, 1, 1, 1],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
        [1, 0, 1, 1],
    ]


KERNELS: list[tuple[AlbertConfig, Attend]] = [
    (AlbertConfig(), full),
    (AlbertConfig(), rectangles),
    (AlbertConfig(), padded),
    *((config, attend_of(config, in_rectangles=False)) for config in LOCAL),
    (LOCAL[1], partial(masked, visible=AttentionBlock(LOCAL[1]).visible)),
]


@pytest.mark.parametrize("queries", [None, READ, [2, 60, 60]])
@pytest.mark.parametrize("lengths", [LENGTHS, (56,) * 6])
@pytest.mark.parametrize(("config", "attend"), KERNELS)
def test_a_kernel_gives_what_its_formula_gives(
    config: AlbertConfig,
    attend: Attend,
    lengths: tuple[int, ...],
    queries: list[int] | None,
) -> None:
    batch, (q, k, v) = _batch(lengths), _rows(336)
    layout = Layout(batch, slice(None) if queries is None else torch.tensor(queries))
    expected = attention(q, k, v, batch, AttentionBlock(config).visible)[layout.queries]
    torch.testing.assert_close(
        attend(q[layout.queries], k, v, layout, 0.0), expected, rtol=0, atol=1e-5
    )


def test_the_memory_of_a_token_in_local_attention_does_not_grow_with_the_length() -> (
    None
):
    sizes = []
    for length, window in ((1_024, 16), (8_192, 16), (32, 2_048)):
        with _Largest() as largest:
            local(
                *_rows(length), Layout(_batch((length,))), 0.0, attention_window=window
            )
        sizes.append(largest.numel / length)
    assert sizes[1] <= 1.1 * sizes[0]
    assert sizes[2] <= 2 * sizes[0], "nor with a window that is wider than the text"


class _Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Record the size of the largest tensor that any operator makes."""

    numel = 0

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        result = operator(*arguments, **(options or {}))
        if isinstance(result, Tensor):
            self.numel = max(self.numel, result.numel())
        return result


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
