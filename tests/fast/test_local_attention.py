"""Local attention: exactly the masked dense formula, at a cost per token that no length changes."""

import pytest
import torch
from litebert.fast.local import local

from litebert.config import AlbertConfig
from litebert.fast import pack
from litebert.fast.attention import Layout
from litebert.nn import Albert, Batch

LENGTHS = (70, 1, 9, 131, 2)


def _batch(lengths: tuple[int, ...] = LENGTHS) -> Batch:
    ids = torch.randint(1, 60, (sum(lengths),), generator=torch.Generator().manual_seed(0))
    return Batch.from_flat(ids, torch.zeros_like(ids), lengths)


def _draw(num_tokens: int) -> tuple[torch.Tensor, ...]:
    draws = torch.Generator().manual_seed(1)
    return torch.randn(3, num_tokens, 2, 8, generator=draws, dtype=torch.float64).unbind(0)


def _dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch, window: int) -> torch.Tensor:
    """Mask the scores of all pairs of tokens."""
    token = torch.arange(len(q))
    first = batch.first_tokens.repeat_interleave(batch.offsets.diff())
    is_near = (token[:, None] - token).abs() <= window
    is_first = (token == first)[:, None] | (token == first)
    sees = (first[:, None] == first) & (is_near | is_first)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~sees, -torch.inf).softmax(-1), v)


@pytest.mark.parametrize("window", [1, 5, 32, 40, 300])
def test_blocks_give_what_the_masked_formula_gives(window: int) -> None:
    batch = _batch()
    q, k, v = _draw(len(batch.ids))
    found = local(q, k, v, Layout(batch), 0.0, window=window)
    torch.testing.assert_close(found, _dense(q, k, v, batch, window), rtol=0, atol=1e-5)


def test_query_rows_are_those_of_all_rows() -> None:
    batch, queries = _batch(), torch.tensor([0, 3, 69, 70, 75, 80, 150, 211])
    q, k, v = _draw(len(batch.ids))
    found = local(q[queries], k, v, Layout(batch, queries), 0.0, window=7)
    torch.testing.assert_close(found, _dense(q, k, v, batch, 7)[queries], rtol=0, atol=1e-5)


def test_gradients_are_those_of_the_masked_formula() -> None:
    batch = _batch()
    parts = [x.requires_grad_() for x in _draw(len(batch.ids))]
    found = torch.autograd.grad(local(*parts, Layout(batch), 0.0, window=4).square().sum(), parts)
    expected = torch.autograd.grad(_dense(*parts, batch, 4).square().sum(), parts)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def _network(**changes: object) -> Albert:
    config = AlbertConfig(
        vocab_size=60,
        embedding_size=16,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=160,
        num_hidden_layers=3,
        max_position_embeddings=256,
        attention="local",
        **changes,
    )
    return Albert(config, generator=torch.Generator().manual_seed(1)).eval()


@torch.no_grad()
def test_packed_weights_give_the_same_states() -> None:
    network, batch = _network(attention_window=4), _batch()
    expected = network(batch)
    pack(network)
    torch.testing.assert_close(network(batch), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_window_over_the_whole_sequence_is_full_attention() -> None:
    wide, batch = _network(attention_window=256), _batch()
    everything = Albert(wide.config.model_copy(update={"attention": "full"})).eval()
    everything.load_state_dict(wide.state_dict())
    torch.testing.assert_close(wide(batch), everything(batch), rtol=0, atol=1e-5)


def test_the_memory_of_a_token_does_not_grow_with_the_length() -> None:
    sizes = []
    for length in (1_024, 8_192):
        q, k, v = _draw(length)
        largest = _Largest()
        with largest:
            local(q, k, v, Layout(_batch((length,))), 0.0, window=16)
        sizes.append(largest.numel / length)
    assert sizes[1] <= 1.1 * sizes[0]


class _Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Note the largest tensor that any operator makes."""

    numel = 0

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        result = operator(*arguments, **(options or {}))
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result
