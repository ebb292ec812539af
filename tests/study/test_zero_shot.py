"""Zero-shot measures equal what a reader of their definition would compute."""

import json
from pathlib import Path

import numpy as np
import pytest

from litebert.errors import LitebertError
from litebert.inference import Model
from litebert.study.zero_shot import blimp, retrieval, sts

TEXTS = ["the cat sat", "the cat sat on the mat", "a dog ran after the cat", "red and blue"]


@pytest.fixture(scope="module")
def model(small_model: Path) -> Model:
    return Model.load(small_model)


def test_blimp_weighs_paradigms_alike(model: Model, tmp_path: Path) -> None:
    better, worse = sorted(TEXTS[:2], key=lambda text: model.score(text).log_likelihood, reverse=True)
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
