"""The losses, the beam and the rows of both families are the official ones."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.nn import AlbertForTask
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.family import Family, Feature, joined, targets_of
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, SpanAnswer, SpanAnswering, SpanExample, score_spans
from litebert.tokenizer import Tokenizer

BOTH = pytest.mark.parametrize("family", [SpanAnswering(), ConditionalSpanAnswering()])
Spans = Family[SpanExample, SpanAnswer]


def _network(family: Spans, *, seed: int = 0) -> AlbertForTask:
    config = AlbertConfig(
        vocab_size=140, embedding_size=32, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=128, max_position_embeddings=96,
        classifier_dropout_prob=0.0,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    return AlbertForTask(config, family.head, generator=generator).eval()


def _features(
    family: Spans, examples: list[SpanExample], tokenizer: Tokenizer, *, training: bool = True
) -> list[Feature]:
    return family.features(examples, tokenizer, max_length=96, training=training)


def _losses(family: Spans, network: AlbertForTask, features: list[Feature]) -> Tensor:
    return family.losses(network, joined(features), targets_of(features))


def test_the_linear_loss_is_the_mean_of_two_cross_entropies(tokenizer: Tokenizer, voyages: list[SpanExample]) -> None:
    family = SpanAnswering()
    network = _network(family)
    (feature, *_) = _features(family, voyages[:1], tokenizer)
    logits = network(joined([feature])).log_softmax(0)
    assert feature.target is not None
    start, end, _ = feature.target
    expected = -(logits[start, 0] + logits[end, 1]) / 2
    torch.testing.assert_close(_losses(family, network, [feature])[0], expected)


def test_the_conditional_loss_is_half_of_three_cross_entropies(
    tokenizer: Tokenizer, voyages: list[SpanExample]
) -> None:
    family = ConditionalSpanAnswering()
    network = _network(family)
    (feature, *_) = _features(family, voyages[:1], tokenizer)
    batch, ids = joined([feature]), feature.ids[0]
    first = feature.segments[0].index(1)
    allowed = torch.tensor([[n == 0 or first <= n < len(ids) - 1 for n in range(len(ids))]])
    assert feature.target is not None
    start, end, is_impossible = (int(part) for part in feature.target)
    spans = score_spans(network, batch, allowed, torch.tensor([[start]]))
    assert not is_impossible
    no_answer = -(1 - spans.no_answer[0].sigmoid()).log()
    expected = (no_answer - spans.start[0, start] - spans.end[0, 0, end]) / 2
    torch.testing.assert_close(_losses(family, network, [feature])[0], expected)


@BOTH
def test_an_answer_does_not_depend_on_the_rest_of_the_batch(
    family: SpanAnswering, tokenizer: Tokenizer, voyages: list[SpanExample]
) -> None:
    network = _network(family)
    features = _features(family, voyages[:6], tokenizer, training=False)
    together = answer(network, family, voyages[:6], features)
    alone = [
        answer(network, family, [one], _features(family, [one], tokenizer, training=False))[0] for one in voyages[:6]
    ]
    assert [one.n_best[0].text for one in together] == [one.n_best[0].text for one in alone]


@torch.inference_mode()
def test_the_official_beam_is_five_starts_with_five_ends_each(tokenizer: Tokenizer, voyages: list[SpanExample]) -> None:
    family = ConditionalSpanAnswering(max_answer_length=1_000)
    network = _network(family)
    batch = joined(_features(family, voyages[:1], tokenizer, training=False)[:1])
    (rows,) = family.outputs(network, batch)
    assert len({row[0] for row in rows[1:]}) <= 5
    allowed = torch.tensor([[n == 0 or s == 1 for n, s in enumerate(batch.segments)]])
    allowed[0, -1] = False
    spans = score_spans(network, batch, allowed, 5)
    starts = spans.chosen[0]
    expected = {
        (int(start), int(end)): float(spans.start[0, start] + spans.end[0, n, end])
        for n, start in enumerate(starts)
        for end in spans.end[0, n].topk(5).indices
        if end >= start
    }
    found = {(int(row[0]), int(row[1])): float(row[2] + row[3]) for row in rows[1:]}
    assert found == pytest.approx(expected)
    assert rows[0, 2] == pytest.approx(float(spans.no_answer[0]))


@BOTH
def test_rows_say_what_was_expected_and_how_sure_the_answer_is(
    family: SpanAnswering, tokenizer: Tokenizer, voyages: list[SpanExample]
) -> None:
    examples = [*voyages[2:4], replace(voyages[0], answers=None)]
    network = _network(family)
    answers = answer(network, family, examples, _features(family, examples, tokenizer, training=False))
    rows = family.rows(examples, answers)
    assert [row.expected for row in rows] == ["1,000", "", None]
    assert rows[2].score is None
    assert all(row.confidence is not None and 0 <= row.confidence <= 1 for row in rows)


def test_a_question_on_an_empty_context_is_answered_as_officially(tokenizer: Tokenizer) -> None:
    blank = [SpanExample("q", "Who?", " ")]
    for family, text, null_score in ((SpanAnswering(), "empty", None), (ConditionalSpanAnswering(), "", 1e6)):
        (found,) = family.answers(blank, [], [])
        assert (found.text, found.null_score) == (text, null_score)
