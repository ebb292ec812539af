"""Zero-shot measures equal a direct computation of their definitions."""

import json
from pathlib import Path

import numpy as np
import pytest

from litebert import evaluate
from litebert.errors import LitebertError
from litebert.inference.measures import blimp, retrieval, sts
from litebert.inference.model import Model

TEXTS = [
    "the cat sat",
    "the cat sat on the mat",
    "a dog ran after the cat",
    "red and blue",
]


@pytest.fixture(scope="module")
def model(small_model: Path) -> Model:
    return Model.load(small_model)


def test_blimp_weighs_paradigms_equally(model: Model, tmp_path: Path) -> None:
    better, worse = sorted(
        TEXTS[:2], key=lambda text: model.score(text).log_likelihood, reverse=True
    )
    rows = [
        (better, worse, "a"),
        (worse, better, "a"),
        *[(better, worse, "a")] * 2,
        (worse, better, "b"),
    ]
    path = tmp_path / "blimp.jsonl"
    names = ("sentence_good", "sentence_bad", "UID", "field")
    path.write_text(
        "\n".join(
            json.dumps(dict(zip(names, (*row, "syntax"), strict=True))) for row in rows
        )
    )
    assert blimp(model, path)["blimp"] == 0.375
    assert (
        evaluate(model.source, data=path, on="blimp", limit=1).measures["blimp"][
            "blimp_syntax"
        ]
        == 0.5
    )


def test_sts_is_the_rank_correlation_of_cosines(model: Model, tmp_path: Path) -> None:
    vectors = model.embed(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    lines = [
        f"{TEXTS[a]}\t{TEXTS[b]}\t{vectors[a] @ vectors[b]}"
        for a, b in [(0, 1), (0, 2), (1, 3), (2, 3)]
    ]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *lines]))
    assert sts(model, path)["sts_spearman"] == pytest.approx(1.0)


def test_rows_without_the_measured_fields_are_one_clear_error(
    model: Model, tmp_path: Path
) -> None:
    whole = dict.fromkeys(
        (
            "sentence1",
            "sentence2",
            "score",
            "sentence_good",
            "sentence_bad",
            "UID",
            "question",
        ),
        1,
    )
    whole |= {"field": "a", "context": "b"}
    nothing = {"text": "a"}
    path = tmp_path / "rows.jsonl"
    for rows in ([nothing], [whole, nothing], [{**whole, "score": "nan"}]):
        path.write_text("\n".join(map(json.dumps, rows)))
        for measure in (sts,) if "score" in rows[-1] else (sts, blimp, retrieval):
            with pytest.raises(LitebertError, match="LB-992"):
                measure(model, path)


def test_a_question_that_is_its_paragraph_is_found_first(
    model: Model, tmp_path: Path
) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(
        "\n".join(json.dumps({"question": text, "context": text}) for text in TEXTS)
    )
    measures = retrieval(model, path)
    assert measures["retrieval_mrr"] == measures["retrieval_recall_at_1"] == 1.0
