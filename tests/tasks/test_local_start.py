"""Some heads begin by looking at their neighbours, whatever the words are."""

import pytest
import torch

from litebert.config import AlbertConfig, preset
from litebert.nn import Albert, Batch
from litebert.tasks.start import OFFSETS, attend_locally, num_local_heads


def begun(config: AlbertConfig, seed: int = 1) -> Albert:
    albert = Albert(config, generator=torch.Generator().manual_seed(0))
    attend_locally(albert, seed=seed)
    return albert


@pytest.mark.parametrize("name", ["tiny", "mini", "small"])
def test_each_local_head_looks_at_its_offset(name: str) -> None:
    config = preset(name).model_copy(update={"vocab_size": 500})
    albert = begun(config)
    ids = torch.randint(5, 500, (64,), generator=torch.Generator().manual_seed(3))

    hidden = next(albert.states(Batch.from_lists([ids.tolist()])))[:64]

    block = albert.attention[0]
    shape = (64, config.num_attention_heads, config.head_size)
    query, key = (p(hidden).view(shape).transpose(0, 1) for p in (block.query, block.key))
    attention = (query @ key.transpose(1, 2) * config.head_size**-0.5).softmax(-1)
    for head, offset in enumerate(OFFSETS[: num_local_heads(config.num_attention_heads)]):
        at_offset = attention[head].diagonal(offset)[8:48]
        assert at_offset.median() > 0.5, (name, head, offset)
    free = attention[num_local_heads(config.num_attention_heads) :]
    assert free.max() < 0.2


@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_size": 64},
        {"embedding_size": 128},
        {"sharing": "none"},
        {"num_attention_heads": 1},
        {"num_attention_heads": 32},
    ],
    ids=str,
)
def test_any_shape_can_begin_so_and_the_seed_says_how(changes: dict[str, object]) -> None:
    sizes = {"vocab_size": 50, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AlbertConfig(**sizes, intermediate_size=64).model_copy(update=changes)
    ours, again, other = (begun(config, seed).state_dict() for seed in (1, 1, 2))
    assert all(tensor.isfinite().all() and torch.equal(tensor, again[name]) for name, tensor in ours.items())
    assert not torch.equal(ours["embedding.position.weight"], other["embedding.position.weight"])
