"""A tag a word: which piece answers, what long sentences lose (nothing), loss and answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.nn import AlbertForTask
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.family import joined, targets_of
from litebert.tasks.kinds.tagging import IGNORED, TagAnswer, TagExample, TokenClassification, encode_words, runs
from litebert.tokenizer import Tokenizer, train_tokenizer

from .conftest import random_network

WORDS = "anna went to berlin with david , 1,905 ( old ) maps in one bag . zürich lies north of rome"
HEAD = HeadConfig(kind="token-classification", labels=("B-LOC", "B-PER", "O"))
FAMILY = TokenClassification(HEAD)
NORTH = "David lies north of Rome ( in a bag )"
SHORT = TagExample("1", ("Anna", "went", "to", "Berlin", "."), (1, 2, 2, 0, 2))
LONG = TagExample("2", tuple(NORTH.split()), (1, *[2] * 3, 0, *[2] * 5))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_model(train_tokenizer(WORDS.split() * 9, vocab_size=44))


@pytest.fixture
def network(tokenizer: Tokenizer) -> AlbertForTask:
    return random_network(tokenizer, HEAD)


def test_words_have_the_ids_of_the_sentence_written_with_spaces(tokenizer: Tokenizer) -> None:
    words = ["Anna", "(", "1,905", ")", "went", ",", "to", "Zürich", "."]
    (pieces,) = encode_words(tokenizer, [words])
    assert [number for word in pieces for number in word] == tokenizer.encode(" ".join(words)).ids
    assert len(pieces) == len(words)
    assert encode_words(tokenizer, [["anna", "", "\u200b", "david"]])[0][1] == [tokenizer.unk_id]


@settings(deadline=None, max_examples=60)
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


def test_no_word_is_lost_when_a_sentence_is_cut(tokenizer: Tokenizer, network: AlbertForTask) -> None:
    for max_length in (4, 8, 13, 99):
        examples = [SHORT, LONG, TagExample("3", ())]
        features = FAMILY.features(examples, tokenizer, max_length=max_length, training=False)
        answers = answer(network, FAMILY, examples, features)
        assert [len(tagged.best) for tagged in answers] == [5, 10, 0]
        assert max(feature.num_tokens for feature in features) <= max_length
    learnt = FAMILY.features([LONG], tokenizer, max_length=8, training=True)
    tags = [tag for feature in learnt for tag in feature.target.tolist() if tag != IGNORED]
    assert (len(learnt) > 1, tuple(tags)) == (True, LONG.tags)


def test_loss_is_the_cross_entropy_summed_over_the_words(tokenizer: Tokenizer, network: AlbertForTask) -> None:
    features = FAMILY.features([SHORT, LONG], tokenizer, max_length=99, training=True)
    found = FAMILY.losses(network, joined(features), targets_of(features))
    for loss, feature in zip(found, features, strict=True):
        logits, targets = network(joined([feature])), targets_of([feature])
        expected = F.cross_entropy(logits[targets != IGNORED], targets[targets != IGNORED], reduction="sum")
        torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)


def test_rows_are_written_in_words() -> None:
    answered = TagAnswer(np.array([[0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]))
    (row,) = FAMILY.rows([TagExample("7", ("Anna", "went"), (1, 1))], [answered])
    assert (row.id, row.text, row.expected, row.answer) == ("7", "Anna went", "B-PER B-PER", "B-PER O")
    assert row.confidence == pytest.approx(0.7)
    assert row.score == 0.5
    (row,) = FAMILY.rows([TagExample("7", ())], [TagAnswer(np.zeros((0, 3)))])  # without words there are no numbers
    assert (row.expected, row.answer, row.confidence, row.score) == (None, "", None, None)
