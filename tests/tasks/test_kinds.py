"""Choices and tags: framed as the official code does, nothing lost, losses and answers as computed one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds import choice
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice, question_texts
from litebert.tasks.kinds.family import joined, targets_of
from litebert.tasks.kinds.tagging import IGNORED, TagAnswer, TagExample, TokenClassification, encode_words, runs
from litebert.tasks.kinds.text import Scores
from litebert.tokenizer import Tokenizer, train_tokenizer

from .conftest import tiny

WORDS = (
    "anna took a red ball to the river. david found an old map in the house near a tree ? . who went to berlin with "
    "1,905 ( old ) maps in one bag , zürich lies north of rome"
)
FEW = settings(deadline=None, max_examples=40)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_model(train_tokenizer(WORDS.split() * 9, vocab_size=54))


def network(tokenizer: Tokenizer, head: HeadConfig) -> AlbertForTask:
    """Give a network with large random weights, in which nothing is dropped."""
    made, generator = AlbertForTask(tiny(tokenizer), head).eval(), torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return made


# Choices

CONTEXT = "Anna took a red ball to the river. David found an old map in the house."
FOUR = ChoiceExample("4", CONTEXT, "What did Anna take?", ("ball", "map", "tree", "house"), 0)
TWO = ChoiceExample("2", CONTEXT, "Anna went to the _ .", ("house", "river"), 1)
THREE = ChoiceExample("3", "A tree.", "Who is near?", ("Anna", "David", "a tree"), 2)
ALL = [FOUR, TWO, THREE]


def _alone(made: AlbertForTask, tokenizer: Tokenizer, example: ChoiceExample) -> torch.Tensor:
    """Compute a question's logits choice by choice, as if no other question were there."""
    family = MultipleChoice(num_choices=len(example.choices))
    (feature,) = family.features([example], tokenizer, max_length=64, training=False)
    pairs = zip(feature.ids, feature.segments, strict=True)
    return torch.cat([made(Batch.from_lists([ids], [kinds]))[0] for ids, kinds in pairs])


def test_questions_with_two_to_four_choices_have_the_loss_and_the_answers_of_each_alone(tokenizer: Tokenizer) -> None:
    made = network(tokenizer, choice.HEAD)
    alone = [_alone(made, tokenizer, example) for example in ALL]
    losses = [F.cross_entropy(logits[None], torch.tensor([e.label])) for logits, e in zip(alone, ALL, strict=True)]
    family = MultipleChoice()
    features = family.features(ALL, tokenizer, max_length=64, training=True)
    found = family.losses(made, joined(features), targets_of(features))
    torch.testing.assert_close(found, torch.stack(losses), rtol=1e-5, atol=1e-6)
    answers = answer(made, family, ALL, family.features(ALL, tokenizer, max_length=64, training=False))
    for logits, scores in zip(alone, answers, strict=True):
        np.testing.assert_allclose(scores.values, logits.softmax(0).detach().numpy(), rtol=1e-4)


@FEW
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


# Tags

HEAD = HeadConfig(kind="token-classification", labels=("B-LOC", "B-PER", "O"))
FAMILY = TokenClassification(HEAD)
NORTH = "David lies north of Rome ( in a bag )"
SHORT = TagExample("1", ("Anna", "went", "to", "Berlin", "."), (1, 2, 2, 0, 2))
LONG = TagExample("2", tuple(NORTH.split()), (1, *[2] * 3, 0, *[2] * 5))


def test_words_have_the_ids_of_the_sentence_written_with_spaces(tokenizer: Tokenizer) -> None:
    words = ["Anna", "(", "1,905", ")", "went", ",", "to", "Zürich", "."]
    (pieces,) = encode_words(tokenizer, [words])
    assert [number for word in pieces for number in word] == tokenizer.encode(" ".join(words)).ids
    assert len(pieces) == len(words)
    assert encode_words(tokenizer, [["anna", "", "\u200b", "david"]])[0][1] == [tokenizer.unk_id]


@FEW
@given(words=st.lists(st.text(max_size=12), max_size=12))
def test_every_word_of_any_sentence_has_pieces(tokenizer: Tokenizer, words: list[str]) -> None:
    (pieces,) = encode_words(tokenizer, [words])
    assert len(pieces) == len(words)
    assert all(pieces)


@given(sizes=st.lists(st.integers(1, 9)), room=st.integers(1, 12))
def test_runs_hold_every_word_once_and_fit(sizes: list[int], room: int) -> None:
    cut = list(runs(sizes, room=room))
    assert [size for run in cut for size in sizes[run]] == sizes
    assert all(sum(sizes[run]) <= room or run.stop - run.start == 1 for run in cut)


def test_target_stands_at_the_first_piece_of_each_word(tokenizer: Tokenizer) -> None:
    (feature,) = FAMILY.features([SHORT], tokenizer, max_length=99, training=True)
    pieces = [tokenizer.piece(number) for number in feature.ids[0]]
    at = np.flatnonzero(feature.target != IGNORED)
    assert [pieces[place][0] for place in at] == ["▁"] * 5
    assert feature.target[at].tolist() == [1, 2, 2, 0, 2]
    assert feature.weight == 5
    assert (feature.ids[0][0], feature.ids[0][-1]) == (tokenizer.cls_id, tokenizer.sep_id)


def test_no_word_is_lost_when_a_sentence_is_cut(tokenizer: Tokenizer) -> None:
    made = network(tokenizer, HEAD)
    for max_length in (4, 8, 13, 99):
        examples = [SHORT, LONG, TagExample("3", ())]
        features = FAMILY.features(examples, tokenizer, max_length=max_length, training=False)
        answers = answer(made, FAMILY, examples, features)
        assert [len(tagged.best) for tagged in answers] == [5, 10, 0]
        assert max(feature.num_tokens for feature in features) <= max_length
    learnt = FAMILY.features([LONG], tokenizer, max_length=8, training=True)
    tags = [tag for feature in learnt for tag in feature.target.tolist() if tag != IGNORED]
    assert (len(learnt) > 1, tuple(tags)) == (True, LONG.tags)


def test_rows_are_written_in_words() -> None:
    answered = TagAnswer(np.array([[0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]))
    (row,) = FAMILY.rows([TagExample("7", ("Anna", "went"), (1, 1))], [answered])
    assert (row.id, row.text, row.expected, row.answer) == ("7", "Anna went", "B-PER B-PER", "B-PER O")
    assert row.confidence == pytest.approx(0.7)
    assert row.score == 0.5
    (row,) = FAMILY.rows([TagExample("7", ())], [TagAnswer(np.zeros((0, 3)))])  # without words there are no numbers
    assert (row.expected, row.answer, row.confidence, row.score) == (None, "", None, None)
