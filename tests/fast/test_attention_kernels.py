"""Every kernel gives what the formula gives."""

import pytest
import torch

from litebert.fast.attention import Layout, full
from litebert.nn import Batch
from litebert.nn.model import attention


def test_the_formula_is_softmax_of_scaled_products_within_each_sequence() -> None:
    q, k, v = torch.randn(3, 10, 2, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    rows = []
    for start, stop in ((0, 1), (1, 6), (6, 10)):
        scores = torch.einsum("qhd,khd->hqk", q[start:stop], k[start:stop]) / 8**0.5
        rows.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[start:stop]))
    found = attention(q, k, v, Layout(Batch.from_lists([[1] * n for n in (1, 5, 4)])))
    torch.testing.assert_close(found, torch.cat(rows))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [(6, 6, 6), (1, 9, 4), (70,)])
def test_cpu_attention_is_the_formula(dtype: torch.dtype, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, sum(lengths), 2, 8).to(dtype).unbind(0)
    batch = Batch.from_lists([[1] * n for n in lengths])
    expected = attention(q.float(), k.float(), v.float(), Layout(batch))
    tolerance = 3e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(full(q, k, v, Layout(batch), 0.0).float(), expected, rtol=0, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_variable_length_attention_on_cuda_is_the_formula() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 150, 2, 64, device="cuda").bfloat16().unbind(0)
    batch = Batch.from_lists([[1] * n for n in (100, 3, 47)]).to("cuda")
    expected = attention(q.float(), k.float(), v.float(), Layout(batch))
    torch.testing.assert_close(full(q, k, v, Layout(batch), 0.0).float(), expected, rtol=0, atol=2e-2)
