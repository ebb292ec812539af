"""Zero-shot measures equal what a reader of their definition would compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.inference import Model
from litebert.nn import AlbertForPretraining, Batch
from litebert.study.zero_shot import blimp, retrieval, sts
from litebert.tokenizer import Tokenizer, train_tokenizer

TEXTS = ["The cats sleep.", "The cat sleeps in the sun.", "Who slept?", "Sun and rain."]


@pytest.fixture(scope="module")
def model() -> Model:
    tokenizer = Tokenizer.from_model(train_tokenizer(TEXTS * 20, vocab_size=32))
    shape = {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = AlbertConfig(vocab_size=tokenizer.vocab_size, **shape, intermediate_size=32, initializer_range=0.5)
    network = AlbertForPretraining(config, generator=torch.Generator().manual_seed(3))
    return Model(network, tokenizer)


@torch.no_grad()
def _naive(model: Model, text: str) -> float:
    """Mask one piece after the other, one forward pass each."""
    tokenizer, network = model.tokenizer, model.network
    assert isinstance(network, AlbertForPretraining)
    ids, total = tokenizer.encode(text).ids, 0.0
    for place, piece in enumerate(ids):
        masked = [*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]
        batch = Batch.from_lists([[tokenizer.cls_id, *masked, tokenizer.sep_id]])
        logits = network(batch, torch.tensor([1 + place])).masked_lm
        total += float(logits.log_softmax(-1)[0, piece])
    return total


def test_one_ragged_stream_scores_as_one_pass_a_piece_does(model: Model) -> None:
    found = [score.log_likelihood for score in model.score(TEXTS)]
    np.testing.assert_allclose(found, [_naive(model, text) for text in TEXTS], atol=1e-4)


def test_blimp_weighs_paradigms_alike(model: Model, tmp_path: Path) -> None:
    better, worse = sorted(TEXTS[:2], key=lambda text: _naive(model, text), reverse=True)
    rows = [(better, worse, "a")] * 3 + [(worse, better, "b")]
    path = tmp_path / "blimp.jsonl"
    names = ("sentence_good", "sentence_bad", "UID", "field")
    path.write_text("\n".join(json.dumps(dict(zip(names, (*row, "syntax"), strict=True))) for row in rows))
    assert blimp(model, path)["blimp"] == 0.5
    assert blimp(model, path, limit=1)["blimp_syntax"] == 0.5


def test_sts_is_the_rank_correlation_of_cosines(model: Model, tmp_path: Path) -> None:
    vectors = model.embed(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = [(0, 1), (0, 2), (1, 3), (2, 3)]
    cosines = [float(vectors[a] @ vectors[b]) for a, b in pairs]
    path = tmp_path / "pairs.tsv"
    lines = [f"{TEXTS[a]}\t{TEXTS[b]}\t{c}" for (a, b), c in zip(pairs, cosines, strict=True)]
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *lines]))
    assert sts(model, path)["sts_spearman"] == pytest.approx(1.0)


def test_a_question_that_is_its_paragraph_is_found_first(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    rows = [{"question": text, "context": text} for text in TEXTS]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = retrieval(model, path)
    assert found["retrieval_mrr"] == 1.0
    assert found["retrieval_recall_at_1"] == 1.0


def test_pairs_without_scores_are_refused(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\na\tb")
    with pytest.raises(LitebertError, match="LB-992"):
        sts(model, path)
