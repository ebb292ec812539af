"""Every way to attend gives what the formula gives."""

import pytest
import torch

from litebert.nn import Batch
from litebert.nn.attention import attend
from litebert.nn.layout import Layout


def _by_formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch) -> torch.Tensor:
    rows = []
    for start, stop in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True):
        scores = torch.einsum("qhd,khd->hqk", q[start:stop], k[start:stop]) / q.shape[-1] ** 0.5
        rows.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[start:stop]))
    return torch.cat(rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [(6, 6, 6), (1, 9, 4), (70,)])
def test_cpu_attention_is_the_formula(dtype: torch.dtype, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, sum(lengths), 2, 8).to(dtype).unbind(0)
    batch = Batch.from_lists([[1] * n for n in lengths])
    expected = _by_formula(q.float(), k.float(), v.float(), batch)
    tolerance = 3e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(
        attend(q, k, v, Layout(batch), 0.0).float(), expected, rtol=0, atol=tolerance
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_variable_length_attention_on_cuda_is_the_formula() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 150, 2, 64, device="cuda").bfloat16().unbind(0)
    batch = Batch.from_lists([[1] * n for n in (100, 3, 47)]).to("cuda")
    expected = _by_formula(q.float(), k.float(), v.float(), batch)
    torch.testing.assert_close(
        attend(q, k, v, Layout(batch), 0.0).float(), expected, rtol=0, atol=2e-2
    )
