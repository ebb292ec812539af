"""Multiple choice: framing, the loss and the answers of questions with different
numbers of choices, what is reported.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from litebert.nn import AlbertForTask, Batch
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.choice import (
    ChoiceExample,
    MultipleChoice,
    question_texts,
)
from litebert.tasks.kinds.family import collate, targets_of
from litebert.tasks.kinds.text import Scores
from litebert.tokenizer import Tokenizer
from tests.networks import config_for, drawn

CONTEXT = "Anna took a red ball to the river. David found an old map in the house."
FOUR = ChoiceExample(
    "4", CONTEXT, "What did Anna take?", ("ball", "map", "tree", "house"), 0
)
TWO = ChoiceExample("2", CONTEXT, "Anna went to the _ .", ("house", "river"), 1)
THREE = ChoiceExample("3", "A tree.", "Who is near?", ("Anna", "David", "a tree"), 2)
QUESTIONS = [FOUR, TWO, THREE]

# ---- the loss and the answers --------------------------------------------------------


@pytest.fixture
def network(words_tokenizer: Tokenizer) -> AlbertForTask:
    head = MultipleChoice().head
    network = AlbertForTask(config_for(words_tokenizer), head)
    drawn(network)
    return network


def logits_alone(
    network: AlbertForTask, example: ChoiceExample, tokenizer: Tokenizer
) -> Tensor:
    """Compute one choice at a time, without other questions in the batch: (choices,)"""
    family = MultipleChoice(num_choices=len(example.choices))
    (feature,) = family.features([example], tokenizer, max_length=64, training=False)
    logits = []
    for ids, segments in zip(feature.ids, feature.segments, strict=True):
        logits.append(network(Batch.from_lists([ids], [segments]))[0])
    return torch.cat(logits).detach()


def test_questions_of_two_to_four_choices_have_the_losses_that_each_has_alone(
    network: AlbertForTask, words_tokenizer: Tokenizer
) -> None:
    family = MultipleChoice()
    features = family.features(QUESTIONS, words_tokenizer, max_length=64, training=True)
    losses = family.losses(network, collate(features), targets_of(features))

    for loss, example in zip(losses, QUESTIONS, strict=True):
        logits = logits_alone(network, example, words_tokenizer)
        expected = F.cross_entropy(logits, torch.tensor(example.label))
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)


def test_questions_of_two_to_four_choices_have_the_answers_that_each_has_alone(
    network: AlbertForTask, words_tokenizer: Tokenizer
) -> None:
    answers = answer(
        network, words_tokenizer, MultipleChoice(), QUESTIONS, max_length=64
    )
    for scores, example in zip(answers, QUESTIONS, strict=True):
        logits = logits_alone(network, example, words_tokenizer)
        np.testing.assert_allclose(scores.values, logits.softmax(0), rtol=1e-4)


# ---- framing -------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    num_context=st.integers(0, 60),
    num_question=st.integers(0, 60),
    max_qa_length=st.integers(1, 40),
)
@pytest.mark.parametrize("max_length", [8, 24, 512])
def test_a_question_keeps_its_end_and_the_context_its_beginning(
    words_tokenizer: Tokenizer,
    max_length: int,
    num_context: int,
    num_question: int,
    max_qa_length: int,
) -> None:
    context = "map " * num_context
    question = "river " * num_question
    example = ChoiceExample("1", context, question, ("ball",))
    family = MultipleChoice(max_qa_length=max_qa_length, num_choices=1)
    (feature,) = family.features(
        [example], words_tokenizer, max_length=max_length, training=False
    )

    texts = [context, *question_texts(example)]
    context_ids, question_ids = words_tokenizer.encode_ids(texts)
    room = max_length - 3  # [CLS], and [SEP] after each
    question_kept = question_ids[-min(max_qa_length, room) :]
    context_kept = context_ids[: room - len(question_kept)]
    cls = words_tokenizer.cls_id
    sep = words_tokenizer.sep_id
    assert feature.ids[0] == [cls, *context_kept, sep, *question_kept, sep]
    in_first = len(context_kept) + 2
    in_second = len(question_kept) + 1
    assert feature.segments[0] == [0] * in_first + [1] * in_second


@pytest.mark.parametrize(
    ("question", "choice", "expected"),
    [
        pytest.param("It is _ .", "red", "It is red .", id="a blank"),
        pytest.param("_ and _", "red", "red and red", id="two blanks"),
        pytest.param("_", "_", "_", id="a choice like a blank"),
        pytest.param("(_)", "  old  map ", "(old map)", id="spaces in the choice"),
        pytest.param("Where\uff3f", r"a\1b", r"Wherea\1b", id="a wide blank"),
        pytest.param("Why?", " red ", "Why? red", id="no blank"),
    ],
)
def test_a_choice_fills_every_blank_or_follows_the_question(
    question: str, choice: str, expected: str
) -> None:
    example = ChoiceExample("1", "", question, (choice,))
    assert question_texts(example) == [expected]


# ---- what is reported ----------------------------------------------------------------

# The third of four answers is wrong.
RIGHT = Scores((0.6, 0.4))
WRONG = Scores((0.4, 0.6))
ANSWERS = [RIGHT, RIGHT, WRONG, RIGHT]
GROUPED = [
    ChoiceExample(str(number), "", "", ("a", "b"), label=0, group=group)
    for number, group in enumerate(["middle", "high", "high", "high"])
]


def test_accuracy_is_reported_for_each_group() -> None:
    measures = MultipleChoice().measures(GROUPED, ANSWERS)
    assert measures == pytest.approx(
        {"accuracy": 3 / 4, "accuracy_high": 2 / 3, "accuracy_middle": 1.0}
    )


def test_one_group_is_not_reported_apart() -> None:
    measures = MultipleChoice().measures(GROUPED[1:], ANSWERS[1:])
    assert measures == pytest.approx({"accuracy": 2 / 3})


def test_a_row_shows_the_right_and_the_chosen_text() -> None:
    (row,) = MultipleChoice().rows([TWO], [Scores((0.9, 0.1))])
    assert row.expected == "river"
    assert row.answer == "house"
    assert row.confidence == 0.9
    assert row.score == 0.0


def test_a_row_without_a_label_shows_the_chosen_text() -> None:
    question = ChoiceExample("7", CONTEXT, "Who?", ("Anna", "David"))
    (row,) = MultipleChoice().rows([question], [Scores((0.3, 0.7))])
    assert row.expected is None
    assert row.answer == "David"
    assert row.confidence == 0.7
    assert row.score is None
