"""The network on rectangles gives what the ragged network gives."""

from collections.abc import Callable

import pytest
import torch

from litebert.interop.export.network import INPUTS, padded
from litebert.interop.export.program import ragged_outputs
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Build = Callable[..., AlbertForPretraining | AlbertForTask]
PLANS = [
    {},
    {"num_hidden_groups": 2},
    {"inner_group_num": 2},
    {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    {"sharing": "attention"},
    {"sharing": "ffn", "inner_group_num": 2},
    {"sharing": "none"},
    {"embedding_size": 32},
    {"embedding_size": 32, "embedding_projection": True},
    {"hidden_act": "relu"},
]
KINDS = [
    *("sequence-classification", "vector-classification", "token-classification"),
    *("question-answering", "conditional-question-answering", "multiple-choice"),
]


def _close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_every_plan_gives_the_logits_of_the_ragged_network(
    build: Build, plan: dict[str, object], padded_inputs: Inputs
) -> None:
    network = build(**plan)
    batch = Batch.from_padded(*padded_inputs)
    words, order = padded(network)(*padded_inputs)
    expected = network(batch, torch.arange(len(batch.ids)))
    _close(words[padded_inputs[1].bool()], expected.masked_lm)
    _close(order, expected.sentence_order)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_every_head_gives_the_outputs_of_the_ragged_network(build: Build, kind: str, padded_inputs: Inputs) -> None:
    network = build(kind)
    rectangle = padded(network)
    if kind == "multiple-choice":  # two questions of three choices
        padded_inputs = tuple(torch.stack([x, x.flip(0)]) for x in padded_inputs)
    outputs = dict(zip(rectangle.output_names, rectangle(*padded_inputs), strict=True))
    starts = outputs.get("start_top_index")
    inputs = {name: values.numpy() for name, values in zip(INPUTS, padded_inputs, strict=True)}
    expected = ragged_outputs(network, inputs, outputs, starts=None if starts is None else starts.numpy())
    for name, values in expected.items():
        real = torch.from_numpy(values > -1e29)
        assert outputs[name].shape == values.shape
        _close(outputs[name][real], torch.from_numpy(values)[real])
        if "logits" in name and kind.endswith("answering"):  # never on padding
            assert real.all() or float(outputs[name][~real].max()) < -1e29


@torch.no_grad()
def test_what_stands_on_padding_changes_nothing(build: Build, padded_inputs: Inputs) -> None:
    network = padded(build(), has_head=False)
    ids, mask, segments = padded_inputs
    wide = [torch.nn.functional.pad(x, (0, 6)) for x in (ids, mask, segments)]
    other = ids.where(mask.bool(), torch.tensor(77))
    states, pooled = network(ids, mask, segments)
    for changed in (wide, (other, mask, segments)):
        again, pooled_again = network(*changed)
        _close(again[:, :14][mask.bool()], states[mask.bool()])
        _close(pooled_again, pooled)


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        (["sentence_order.classifier.weight"], ("prediction_logits",)),
        (["albert.pooler.weight", "albert.pooler.bias"], ("prediction_logits",)),
        (["masked_lm.dense.weight"], ("sop_logits",)),
        (["masked_lm.bias", "sentence_order.classifier.bias"], ("last_hidden_state", "pooler_output")),
        (["masked_lm.bias", "albert.pooler.weight"], ("last_hidden_state",)),
    ],
)
def test_only_what_the_file_has_is_given(build: Build, missing: list[str], names: tuple[str, ...]) -> None:
    assert padded(build(), missing=missing).output_names == names
