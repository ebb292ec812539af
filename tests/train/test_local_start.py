"""Some heads start by attending to their neighbors, whatever the pieces are."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from litebert.config import AlbertConfig, preset
from litebert.nn import Albert, Batch
from litebert.train.local_start import OFFSETS, attend_locally, num_local_heads

LENGTH = 64


def with_local_heads(config: AlbertConfig, seed: int) -> Albert:
    albert = Albert(config, generator=torch.Generator().manual_seed(0))
    attend_locally(albert, seed=seed)
    return albert


def attention_of_first_layer(albert: Albert) -> Float[Tensor, "heads from to"]:
    """Return who attends to whom in a text of drawn pieces."""
    config = albert.config
    draws = torch.Generator().manual_seed(3)
    ids = torch.randint(5, config.vocab_size, (LENGTH,), generator=draws)
    hidden = next(albert.states(Batch.from_lists([ids.tolist()])))[:LENGTH]

    block = albert.attention[0]
    by_head = (LENGTH, config.num_attention_heads, config.head_size)
    query = block.query(hidden).view(by_head).transpose(0, 1)
    key = block.key(hidden).view(by_head).transpose(0, 1)
    scores = query @ key.transpose(1, 2) * config.head_size**-0.5
    return scores.softmax(-1)


@pytest.mark.parametrize("name", ["tiny", "mini", "small"])
def test_each_local_head_attends_to_its_offset(name: str) -> None:
    config = preset(name).model_copy(update={"vocab_size": 500})
    attention = attention_of_first_layer(with_local_heads(config, seed=1))
    num_local = num_local_heads(config.num_attention_heads)
    for head, offset in enumerate(OFFSETS[:num_local]):
        at_offset = attention[head].diagonal(offset)[8:48]  # far from both ends
        assert at_offset.median() > 0.5, (head, offset)
    assert attention[num_local:].max() < 0.2


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
def test_any_shape_can_have_local_heads_and_the_seed_decides_the_start(
    changes: dict[str, object],
) -> None:
    config = AlbertConfig(
        vocab_size=50,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    ).model_copy(update=changes)
    weights = with_local_heads(config, seed=1).state_dict()
    same_seed = with_local_heads(config, seed=1).state_dict()
    other_seed = with_local_heads(config, seed=2).state_dict()
    for name, weight in weights.items():
        assert weight.isfinite().all(), name
        assert torch.equal(weight, same_seed[name]), name
    positions = "embedding.position.weight"
    assert not torch.equal(weights[positions], other_seed[positions])
