"""Texts that are longer than a classifier reads: its windows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import litebert
from litebert.config import HeadConfig
from litebert.tasks.kinds.family import Feature
from litebert.tasks.kinds.text import SingleLabel, TextClassification, TextExample
from litebert.tokenizer import Tokenizer
from tests.networks import save_random

HEAD = HeadConfig(kind="sequence-classification", labels=("no", "yes"))
PUBLISHED = SingleLabel(HEAD)
IN_WINDOWS = replace(PUBLISHED, reads_windows=True)

MAX_LENGTH = 30
WIDTH = MAX_LENGTH - 2  # without [CLS] and [SEP]
SHORT_TEXT = "Anna took a ball"
LONG_TEXT = "Anna took a red ball to the river. David found an old map here. " * 4

SHORT = TextExample("short", SHORT_TEXT, None, 0)
LONG = TextExample("long", LONG_TEXT, None, 1)
LONG_FIRST = TextExample("long first", LONG_TEXT, SHORT_TEXT, 1)
LONG_SECOND = TextExample("long second", SHORT_TEXT, LONG_TEXT, 0)
EXAMPLES = [SHORT, LONG, LONG_FIRST, LONG_SECOND]


def features_of(
    family: TextClassification,
    examples: list[TextExample],
    tokenizer: Tokenizer,
    *,
    training: bool = False,
) -> list[Feature]:
    return family.features(
        examples, tokenizer, max_length=MAX_LENGTH, training=training
    )


# ---- what is read --------------------------------------------------------------------


def test_the_windows_of_a_text_overlap_and_miss_no_piece(
    words_tokenizer: Tokenizer,
) -> None:
    (pieces,) = words_tokenizer.encode_ids([LONG_TEXT])
    windows = features_of(IN_WINDOWS, [LONG], words_tokenizer)
    assert len(windows) > 2

    starts = list[int]()
    for window in windows:
        inner = window.ids[0][1:-1]
        assert len(inner) == WIDTH
        start = starts[-1] + 1 if starts else 0
        while pieces[start : start + WIDTH] != inner:
            start += 1
            assert start < len(pieces), "a window has other pieces than the text"
        starts.append(start)
    assert starts[0] == 0
    assert starts[-1] == len(pieces) - WIDTH
    # they overlap by a quarter or more
    assert max(np.diff(starts)) <= WIDTH * 3 / 4


def test_a_short_text_has_one_window(words_tokenizer: Tokenizer) -> None:
    assert len(features_of(IN_WINDOWS, [SHORT], words_tokenizer)) == 1


def test_the_short_text_of_a_pair_stands_in_every_window(
    words_tokenizer: Tokenizer,
) -> None:
    (short,) = words_tokenizer.encode_ids([SHORT_TEXT])
    windows = features_of(IN_WINDOWS, [LONG_FIRST], words_tokenizer)
    assert len(windows) > 2
    for window in windows:
        assert window.ids[0][-1 - len(short) : -1] == short

    windows = features_of(IN_WINDOWS, [LONG_SECOND], words_tokenizer)
    assert len(windows) > 2
    for window in windows:
        assert window.ids[0][1 : 1 + len(short)] == short


def test_no_window_is_longer_than_the_model_reads(words_tokenizer: Tokenizer) -> None:
    windows = features_of(IN_WINDOWS, EXAMPLES, words_tokenizer)
    assert max(window.num_tokens for window in windows) == MAX_LENGTH


def test_named_tasks_read_the_beginning_as_published(
    words_tokenizer: Tokenizer,
) -> None:
    (pieces,) = words_tokenizer.encode_ids([LONG_TEXT])
    (feature,) = features_of(PUBLISHED, [LONG], words_tokenizer)
    assert feature.ids[0][1:-1] == pieces[:WIDTH]


def test_training_reads_the_beginning(words_tokenizer: Tokenizer) -> None:
    training = features_of(IN_WINDOWS, EXAMPLES, words_tokenizer, training=True)
    published = features_of(PUBLISHED, EXAMPLES, words_tokenizer)
    assert len(training) == len(EXAMPLES)
    assert [feature.ids for feature in training] == [
        feature.ids for feature in published
    ]


# ---- what is answered ----------------------------------------------------------------


def test_the_answer_to_a_text_is_the_mean_over_its_windows(
    words_tokenizer: Tokenizer,
) -> None:
    windows = features_of(IN_WINDOWS, [LONG], words_tokenizer)[:2]
    outputs = [np.array([0.2, 0.8]), np.array([0.6, 0.4])]
    scores = IN_WINDOWS.answer(LONG, windows, outputs)
    assert scores.values == pytest.approx((0.4, 0.6))


def test_the_end_of_a_long_text_changes_the_answer(
    words_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = litebert.load(save_random(tmp_path / "model", words_tokenizer, HEAD))
    beginning = "Anna took " * 100  # more than the model reads at once
    other_end = beginning + "a red ball to the river. " * 9
    probability = model.classify(beginning).values["yes"]
    changed = model.classify(other_end).values["yes"]
    assert abs(changed - probability) > 1e-3
