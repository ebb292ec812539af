"""Multiple choice: framing as the official code, loss and answers over each question's choices."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from litebert.errors import LitebertError
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.choice import HEAD, ChoiceExample, MultipleChoice, question_texts
from litebert.tasks.kinds.family import joined, targets_of
from litebert.tasks.kinds.text import Scores
from litebert.tokenizer import Tokenizer, train_tokenizer

from .conftest import random_network

WORDS = "anna took a red ball to the river. david found an old map in the house near a tree ? . who"
CONTEXT = "Anna took a red ball to the river. David found an old map in the house."
FOUR = ChoiceExample("4", CONTEXT, "What did Anna take?", ("ball", "map", "tree", "house"), 0)
TWO = ChoiceExample("2", CONTEXT, "Anna went to the _ .", ("house", "river"), 1)
THREE = ChoiceExample("3", "A tree.", "Who is near?", ("Anna", "David", "a tree"), 2)
ALL = [FOUR, TWO, THREE]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_model(train_tokenizer(WORDS.split() * 9, vocab_size=42))


@pytest.fixture
def network(tokenizer: Tokenizer) -> AlbertForTask:
    return random_network(tokenizer, HEAD)


def _alone(network: AlbertForTask, tokenizer: Tokenizer, example: ChoiceExample) -> torch.Tensor:
    """Compute a question's logits choice by choice, as if no other question were there."""
    family = MultipleChoice(num_choices=len(example.choices))
    (feature,) = family.features([example], tokenizer, max_length=64, training=False)
    pairs = zip(feature.ids, feature.segments, strict=True)
    return torch.cat([network(Batch.from_lists([ids], [kinds]))[0] for ids, kinds in pairs])


def test_questions_with_two_to_four_choices_have_the_loss_and_the_answers_of_each_alone(
    network: AlbertForTask, tokenizer: Tokenizer
) -> None:
    alone = [_alone(network, tokenizer, example) for example in ALL]
    losses = [F.cross_entropy(logits[None], torch.tensor([e.label])) for logits, e in zip(alone, ALL, strict=True)]
    family = MultipleChoice()
    features = family.features(ALL, tokenizer, max_length=64, training=True)
    found = family.losses(network, joined(features), targets_of(features))
    torch.testing.assert_close(found, torch.stack(losses), rtol=1e-5, atol=1e-6)
    answers = answer(network, family, ALL, family.features(ALL, tokenizer, max_length=64, training=False))
    for logits, scores in zip(alone, answers, strict=True):
        np.testing.assert_allclose(scores.values, logits.softmax(0).detach().numpy(), rtol=1e-4)


@settings(deadline=None, max_examples=40)
@given(words=st.integers(0, 60), asked=st.integers(0, 60), most=st.integers(1, 40))
@pytest.mark.parametrize("max_length", [8, 24, 512])
def test_framing_keeps_the_most_that_fits(
    tokenizer: Tokenizer, max_length: int, words: int, asked: int, most: int
) -> None:
    example = ChoiceExample("1", "map " * words, "river " * asked, ("ball",))
    family = MultipleChoice(max_qa_length=most, num_choices=1)
    (feature,) = family.features([example], tokenizer, max_length=max_length, training=False)
    ids, segments = feature.ids[0], feature.segments[0]
    context, question = tokenizer.encode_ids([example.context, *question_texts(example)])
    kept = min(len(question), most, max_length - 3)
    room = min(len(context), max_length - 3 - kept)
    assert ids[1 : 1 + room] == context[:room]
    assert ids[2 + room : -1] == question[-kept:]
    assert segments == [0] * (room + 2) + [1] * (kept + 1)
    assert [n for n, token in enumerate(ids) if token == tokenizer.sep_id] == [room + 1, len(ids) - 1]


@pytest.mark.parametrize(
    ("question", "choice", "expected"),
    [
        ("It is _ .", "red", "It is red ."),
        ("_ and _", "red", "red and red"),
        ("(_)", "  old  map ", "(old map)"),
        ("Where\uff3f", r"a\1b", r"Wherea\1b"),
        ("Which?", " red ", "Which? red"),
        ("_", "_", "_"),
    ],
)
def test_every_blank_takes_the_choice_and_questions_without_one_are_followed_by_it(
    question: str, choice: str, expected: str
) -> None:
    assert question_texts(ChoiceExample("1", "", question, (choice,))) == [expected]


def test_accuracy_is_reported_by_group_where_there_are_several() -> None:
    groups, family = ("middle", "high", "high", "high"), MultipleChoice()
    asked = [ChoiceExample(str(n), "", "", ("a", "b"), label=0, group=group) for n, group in enumerate(groups)]
    answers = [Scores((0.6, 0.4))] * 2 + [Scores((0.4, 0.6)), Scores((0.6, 0.4))]
    third = pytest.approx(2 / 3)
    measured = {"accuracy": 0.75, "accuracy_high": third, "accuracy_middle": 1.0}
    assert family.measures(asked, answers) == measured
    assert family.measures(asked[1:], answers[1:]) == {"accuracy": third}
    with pytest.raises(LitebertError, match="LB-430"):
        family.measures([], [])


def test_rows_show_the_chosen_text_beside_the_right_one() -> None:
    asked = [TWO, ChoiceExample("7", CONTEXT, "Who?", ("Anna", "David"))]
    rows = MultipleChoice().rows(asked, [Scores((0.9, 0.1)), Scores((0.3, 0.7))])
    found = [(row.expected, row.answer, row.confidence, row.score) for row in rows]
    assert found == [("river", "house", 0.9, 0.0), (None, "David", 0.7, None)]
