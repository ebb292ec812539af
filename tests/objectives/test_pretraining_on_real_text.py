"""Real text and the real vocabulary: the shares that the official script was measured to give."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives import Loader, PretrainingBatch, Vocabulary
from litebert.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(real_data: Path) -> Tokenizer:
    return Tokenizer.load(real_data / "tokenizer" / "spiece.model")


@pytest.fixture(scope="module")
def articles(real_data: Path, tokenizer: Tokenizer) -> Shard:
    """Read sections of articles as documents of sentences."""
    with gzip.open(real_data / "text/wikitext2_valid.txt.gz", "rt", encoding="utf-8") as file:
        sections = re.split(r"\n = .*\n", file.read())
    documents = [re.split(r"(?<= [.!?]) |\n", section) for section in sections]
    encoded = [[ids for ids in tokenizer.encode_ids(document) if ids] for document in documents]
    encoded = [document for document in encoded if document]
    sentences = [ids for document in encoded for ids in document]
    lengths, documents = np.cumsum([0, *map(len, sentences)]), np.cumsum([0, *map(len, encoded)])
    return Shard(np.concatenate(sentences).astype(np.uint16), lengths, documents)


def runs_of_masked_words(batch: PretrainingBatch, vocabulary: Vocabulary) -> Counter[int]:
    """Count how long the unbroken runs of masked words are."""
    ids, is_masked = batch.ids.copy(), np.zeros(len(batch.ids), np.bool_)
    ids[batch.masked_positions] = batch.masked_ids
    is_masked[batch.masked_positions] = True
    counts = Counter[int]()
    for start, stop in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        sequence = ids[start:stop]
        words = vocabulary.starts_word[sequence] & (sequence != 2) & (sequence != 3)
        edges = np.diff(np.concatenate(([0], is_masked[start:stop][words].astype(int), [0])))
        counts.update((np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)).tolist())
    return counts


def test_official_settings_give_the_official_shares(articles: Shard, tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary(30_000, cls_id=2, sep_id=3, mask_id=4, starts_word=tokenizer.starts_word)
    config = ObjectiveConfig(sentence="order-official", short_seq_per="document", max_predictions=77)
    loader = Loader([articles], vocabulary=vocabulary, config=config, batch_size=1, seed=1)
    batch = loader.samples(0, 2_000)
    runs = runs_of_masked_words(batch, vocabulary)
    total = runs.total()
    shares = [runs[1] / total, runs[2] / total, runs[3] / total]
    assert np.abs(np.array(shares) - [0.527, 0.266, 0.169]).max() < 0.012
    assert abs(1 - sum(shares) - 0.038) < 0.006
    assert abs(len(batch.masked_ids) / len(batch.ids) - 0.150) < 0.001
    assert batch.sentence_labels is not None
    assert 0.53 < batch.sentence_labels.mean() < 0.59
