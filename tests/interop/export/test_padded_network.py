"""The network on rectangles gives what the ragged network gives."""

from collections.abc import Callable

import pytest
import torch

from litebert.interop.export.network import padded
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch
from litebert.tasks.kinds.spans import score_spans

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
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


def _outputs(network: torch.nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    rectangle = padded(network)
    with torch.no_grad():
        return dict(zip(rectangle.output_names, rectangle(*inputs), strict=True))


def _close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_every_plan_gives_the_logits_of_the_ragged_network(
    build: Callable[..., AlbertForPretraining], plan: dict[str, object], padded_inputs: Inputs
) -> None:
    network = build(**plan)
    batch = Batch.from_padded(*padded_inputs)
    outputs = _outputs(network, padded_inputs)
    with torch.no_grad():
        expected = network(batch, torch.arange(len(batch.ids)))
    _close(outputs["prediction_logits"][padded_inputs[1].bool()], expected.masked_lm)
    _close(outputs["sop_logits"], expected.sentence_order)


@pytest.mark.parametrize("kind", ["sequence-classification", "token-classification"])
def test_classifiers_give_the_logits_of_the_ragged_network(
    build: Callable[..., AlbertForTask], kind: str, padded_inputs: Inputs
) -> None:
    network = build(kind)
    logits = _outputs(network, padded_inputs)["logits"]
    rows = logits if kind.startswith("sequence") else logits[padded_inputs[1].bool()]
    with torch.no_grad():
        _close(rows, network(Batch.from_padded(*padded_inputs)))


def test_spans_are_those_of_the_ragged_network_and_never_on_padding(
    build: Callable[..., AlbertForTask], padded_inputs: Inputs
) -> None:
    network, real = build("question-answering"), padded_inputs[1].bool()
    outputs = _outputs(network, padded_inputs)
    pair = torch.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    with torch.no_grad():
        _close(pair[real], network(Batch.from_padded(*padded_inputs)))
    assert float(pair[~real].max()) < -1e29


def test_the_conditional_beam_is_that_of_the_ragged_network(
    build: Callable[..., AlbertForTask], padded_inputs: Inputs
) -> None:
    network = build("conditional-question-answering")
    outputs = _outputs(network, padded_inputs)
    allowed = torch.zeros(3, 14, dtype=torch.bool)
    allowed[:, 0] = True
    for row, last in enumerate((13, 8, 10)):  # where the closing [SEP] stands
        allowed[row, 5:last] = True
    with torch.no_grad():
        expected = score_spans(network, Batch.from_padded(*padded_inputs), allowed, 5)
    possible = allowed.expand(5, 3, 14).transpose(0, 1)
    _close(outputs["start_logits"][allowed], expected.start[allowed])
    assert torch.equal(outputs["start_top_index"], expected.chosen)
    _close(outputs["end_logits"][possible], expected.end[possible])
    _close(outputs["no_answer_logits"], expected.no_answer)
    assert float(outputs["end_logits"][~possible].max()) < -1e29


def test_choices_are_sequences_of_their_own(build: Callable[..., AlbertForTask], padded_inputs: Inputs) -> None:
    network = build("multiple-choice")
    questions = tuple(torch.stack([x, x.flip(0)]) for x in padded_inputs)
    logits = _outputs(network, questions)["logits"]
    rows = Batch.from_padded(*(x.flatten(0, 1) for x in questions))
    with torch.no_grad():
        _close(logits, network(rows).view(2, 3))


def test_what_stands_on_padding_changes_nothing(
    build: Callable[..., AlbertForPretraining], padded_inputs: Inputs
) -> None:
    network = padded(build(), has_head=False)
    ids, mask, segments = padded_inputs
    wide = [torch.nn.functional.pad(x, (0, 6)) for x in (ids, mask, segments)]
    other = ids.where(mask.bool(), torch.tensor(77))
    with torch.no_grad():
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
def test_only_what_the_file_has_is_given(
    build: Callable[..., AlbertForPretraining], missing: list[str], names: tuple[str, ...]
) -> None:
    assert padded(build(), missing=frozenset(missing)).output_names == names
