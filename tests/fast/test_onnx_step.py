"""Steps of one short text as graphs of onnxruntime: the same numbers as the packed network."""

import pytest
import torch

from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.fast import accelerate, pack, use_backend
from litebert.hub import packaged_model
from litebert.inference import Model
from litebert.nn import AlbertForPretraining, Batch

CONFIG = {"vocab_size": 50, "embedding_size": 8, "hidden_size": 24, "num_attention_heads": 3}
CONFIG |= {"num_hidden_layers": 4, "intermediate_size": 48, "hidden_act": "gelu"}
SHORT, LONG = [2, 7, 9, 11, 3], [2, *range(4, 49), *range(4, 49), 3]


def _network(**changes: object) -> AlbertForPretraining:
    """Return a network whose weights are large enough to tell steps apart."""
    draws = torch.Generator().manual_seed(3)
    network = AlbertForPretraining(AlbertConfig(**{**CONFIG, **changes}), generator=draws).eval()
    with torch.no_grad():
        for parameter in network.albert.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draws))
    accelerate(network)
    pack(network.albert)
    return network


@pytest.mark.parametrize(
    "changes", [{}, {"hidden_act": "gelu_new"}, {"sharing": "none"}, {"sharing": "ffn"}, {"num_hidden_groups": 2}]
)
@pytest.mark.parametrize("rows", [[SHORT], [LONG], [SHORT, LONG], [SHORT, SHORT]])
@torch.inference_mode()
def test_graphs_give_the_numbers_of_the_network(changes: dict[str, object], rows) -> None:
    network, batch = _network(**changes).albert, Batch.from_lists(rows)
    states, first = list(network.states(batch)), network(batch, batch.first_tokens)
    use_backend(network, "onnxruntime")
    for ours, theirs in zip(network.states(batch), states, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(network(batch, batch.first_tokens), first, rtol=1e-4, atol=1e-5)
    network.depth = 2
    torch.testing.assert_close(network(batch), states[2], rtol=1e-4, atol=1e-5)


def test_changed_weights_are_noticed_and_what_has_no_graph_stays_as_it_is() -> None:
    network, batch = _network().albert, Batch.from_lists([SHORT])
    use_backend(network, "onnxruntime")
    with torch.no_grad():
        before = network(batch)
        network.feed_forward[0].output.bias[0].add_(3.0)
        assert (before - network(batch)).abs().max() > 1e-2
        for change in ({"hidden_act": "relu"}, {"attention": "local"}):
            network = _network(**change).albert
            expected = network(batch)
            use_backend(network, "onnxruntime")
            assert torch.equal(network(batch), expected)


def test_the_packaged_model_answers_alike_with_either_backend() -> None:
    by_torch, by_graphs = (Model.load(packaged_model(), backend=backend) for backend in ("torch", "onnxruntime"))
    text = "The cat sat on the [MASK]."
    for ours, theirs in zip(by_graphs.fill(text), by_torch.fill(text), strict=True):
        assert ours.words == theirs.words
        assert ours.probability == pytest.approx(theirs.probability, abs=1e-5)
    assert by_graphs.embed("A cat.") == pytest.approx(by_torch.embed("A cat."), abs=1e-5)
    with pytest.raises(LitebertError, match="LB-975"):
        Model.load(backend="onnxrutime")
