"""Tags of words: their pieces, their targets, sentences that are too long, what is
reported.
"""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.config import HeadConfig
from litebert.nn import AlbertForTask
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.tagging import (
    IGNORED,
    TagAnswer,
    TagExample,
    TokenClassification,
    encode_words,
)
from litebert.tokenizer import Tokenizer
from tests.networks import config_for, drawn

HEAD = HeadConfig(kind="token-classification", labels=("B-LOC", "B-PER", "O"))
FAMILY = TokenClassification(HEAD)
SHORT = TagExample("1", ("Anna", "went", "to", "Berlin", "."), (1, 2, 2, 0, 2))
LONG = TagExample(
    "2",
    ("David", "lies", "north", "of", "Rome", "(", "in", "a", "bag", ")"),
    (1, 2, 2, 2, 0, 2, 2, 2, 2, 2),
)
EMPTY = TagExample("3", ())


@pytest.mark.parametrize(
    ("labels", "measure"),
    [
        (("O", "B-a", "I-a"), "f1"),
        (("O", "S-a", "B-a", "I-a", "E-a"), "f1"),
        (("O", "U-a", "L-a"), "f1"),
        (("O", "ORG"), "f1"),
        (("NOUN", "VERB"), "accuracy"),
    ],
)
def test_tags_of_entities_are_measured_by_f1(
    labels: tuple[str, ...], measure: str
) -> None:
    head = HEAD.model_copy(update={"labels": labels})
    assert replace(FAMILY, head=head).key_measure == measure


# ---- pieces and targets --------------------------------------------------------------


def test_words_have_the_ids_of_the_sentence_written_with_spaces(
    words_tokenizer: Tokenizer,
) -> None:
    words = ["Anna", "(", "1,905", ")", "went", ",", "to", "Zürich", "."]
    (pieces,) = encode_words(words_tokenizer, [words])
    assert len(pieces) == len(words)
    sentence = words_tokenizer.encode(" ".join(words))
    assert [*chain.from_iterable(pieces)] == sentence.ids


@pytest.mark.parametrize("word", ["", "\u200b"])
def test_a_word_without_a_character_is_one_unknown_piece(
    word: str, words_tokenizer: Tokenizer
) -> None:
    (pieces,) = encode_words(words_tokenizer, [["anna", word, "david"]])
    assert pieces[1] == [words_tokenizer.unk_id]


@settings(deadline=None, max_examples=40)
@given(words=st.lists(st.text(max_size=12), max_size=12))
def test_every_word_of_any_sentence_has_pieces(
    words_tokenizer: Tokenizer, words: list[str]
) -> None:
    (pieces,) = encode_words(words_tokenizer, [words])
    assert len(pieces) == len(words)
    assert all(pieces)


def test_only_the_first_piece_of_each_word_has_a_target(
    words_tokenizer: Tokenizer,
) -> None:
    (feature,) = FAMILY.features([SHORT], words_tokenizer, max_length=99, training=True)
    places = np.flatnonzero(feature.target != IGNORED)
    assert tuple(feature.target[places]) == SHORT.tags
    assert feature.weight == len(SHORT.words)

    (pieces,) = encode_words(words_tokenizer, [SHORT.words])
    first_pieces = [word[0] for word in pieces]
    assert [feature.ids[0][place] for place in places] == first_pieces


def test_a_sentence_stands_between_the_special_pieces(
    words_tokenizer: Tokenizer,
) -> None:
    (feature,) = FAMILY.features([SHORT], words_tokenizer, max_length=99, training=True)
    assert feature.ids[0][0] == words_tokenizer.cls_id
    assert feature.ids[0][-1] == words_tokenizer.sep_id


# ---- sentences that are too long -----------------------------------------------------


@pytest.mark.parametrize("max_length", [4, 8, 13, 99])
def test_a_sentence_that_is_cut_gets_a_tag_for_every_word(
    max_length: int, words_tokenizer: Tokenizer
) -> None:
    network = AlbertForTask(config_for(words_tokenizer), HEAD)
    drawn(network)
    examples = [SHORT, LONG, EMPTY]
    answers = answer(network, words_tokenizer, FAMILY, examples, max_length=max_length)
    num_words = [len(example.words) for example in examples]
    assert [len(tagged.best) for tagged in answers] == num_words


@pytest.mark.parametrize("max_length", [4, 8, 13, 99])
def test_no_part_of_a_sentence_is_longer_than_the_model_reads(
    max_length: int, words_tokenizer: Tokenizer
) -> None:
    features = FAMILY.features(
        [SHORT, LONG, EMPTY], words_tokenizer, max_length=max_length, training=False
    )
    assert max(feature.num_tokens for feature in features) <= max_length


def test_a_sentence_that_is_cut_teaches_all_its_tags(
    words_tokenizer: Tokenizer,
) -> None:
    features = FAMILY.features([LONG], words_tokenizer, max_length=8, training=True)
    assert len(features) > 1
    targets = np.concatenate([feature.target for feature in features])
    assert tuple(targets[targets != IGNORED]) == LONG.tags


# ---- what is reported ----------------------------------------------------------------


def test_a_row_is_written_in_words() -> None:
    example = TagExample("7", ("Anna", "went"), (1, 1))
    probabilities = np.array([[0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])  # (words, labels)
    (row,) = FAMILY.rows([example], [TagAnswer(probabilities)])
    assert row.id == "7"
    assert row.text == "Anna went"
    assert row.expected == "B-PER B-PER"
    assert row.answer == "B-PER O"
    assert row.confidence == pytest.approx((0.8 + 0.6) / 2)
    assert row.score == 0.5


def test_a_row_without_words_has_no_numbers() -> None:
    (row,) = FAMILY.rows([EMPTY], [TagAnswer(np.zeros((0, 3)))])
    assert row.answer == ""
    assert row.expected is None
    assert row.confidence is None
    assert row.score is None
