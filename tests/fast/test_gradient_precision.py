"""In bf16 the gradients of a shared block's uses add up in float32."""

import torch

from litebert.config import AlbertConfig
from litebert.fast.steps import cast, training_steps
from litebert.nn import Albert, Batch

CONFIG = AlbertConfig(
    vocab_size=50, embedding_size=16, hidden_size=32, num_hidden_layers=6, num_attention_heads=2, intermediate_size=64
)


def test_small_gradients_survive_beside_large_ones() -> None:
    weight = torch.ones(4, requires_grad=True)
    use = cast(weight, torch.bfloat16)

    torch.stack([256 * use(), *(use() for _ in range(5))]).sum().backward()

    assert weight.grad.tolist() == [261.0] * 4


def test_the_gradient_of_a_shared_layer_is_the_float32_sum_of_its_uses() -> None:
    model = Albert(CONFIG, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(1))
    model.make_steps = training_steps
    gradients: list[torch.Tensor] = []
    (block,) = model.feed_forward
    block.output.weight.register_hook(lambda g: gradients.append(g.clone()))

    model(Batch.from_lists([list(range(2, 40))])).float().square().sum().backward()

    (summed,) = gradients
    assert summed.dtype == torch.float32
    assert not torch.equal(summed, summed.bfloat16().float())  # bits that bf16 does not have


def test_without_gradients_the_cast_weight_is_given_as_it_is() -> None:
    weight = torch.ones(4, requires_grad=True)
    use = cast(weight, torch.bfloat16)

    with torch.no_grad():
        assert use() is use()
    assert cast(weight, torch.float32)() is weight
