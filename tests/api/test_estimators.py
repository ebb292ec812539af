"""scikit-learn's view of litebert: its own checks, a pipeline, copies; LangChain's two methods."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import litebert
from litebert import LitebertClassifier, LitebertVectorizer
from litebert.api.run import Run
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.train import train_tokenizer

ANIMALS = ["a cat sleeps", "two dogs bark", "the horse runs", "a small bird sings"] * 5
FOOD = ["fresh bread and butter", "a bowl of soup", "ripe apples", "rice with beans"] * 5
TEXTS, LABELS = [*ANIMALS, *FOOD], ["animal"] * 20 + ["food"] * 20

# The checks that do not fit the estimator to a table of numbers, which no text is.
CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_mixin_order,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", [LitebertClassifier, LitebertVectorizer])
def test_checks_of_scikit_learn(kind: type[BaseEstimator], check: Callable[[str, BaseEstimator], None]) -> None:
    check(kind.__name__, kind())


def test_a_pipeline_is_cross_validated() -> None:
    pipeline = make_pipeline(LitebertVectorizer(), LogisticRegression())
    assert cross_val_score(pipeline, TEXTS, LABELS, cv=2).mean() > 0.9


def test_vectors_are_those_of_embed_and_copies_load_anew() -> None:
    vectorizer = LitebertVectorizer(normalize=True)
    expected = litebert.load().embed(TEXTS[:3], normalize=True)
    np.testing.assert_array_equal(vectorizer.fit_transform(TEXTS[:3]), expected)
    twin = copy.deepcopy(vectorizer)
    np.testing.assert_array_equal(twin.transform(np.array(TEXTS[:3])), expected)
    assert len(vectorizer.get_feature_names_out()) == expected.shape[1]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a network so small that it learns in seconds."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer.from_model(train_tokenizer(TEXTS * 5, vocab_size=42))
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=32,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    save_model(AlbertForPretraining(config, generator=torch.Generator().manual_seed(1)), folder)
    tokenizer.save(folder)
    return folder


def test_a_classifier_learns_and_its_copy_predicts_the_same(tiny: Path) -> None:
    settings = {"optim.learning_rate": 5e-3, "train.batch_size": 8}
    classifier = LitebertClassifier(tiny, epochs=40, settings=settings)
    with pytest.raises(NotFittedError):
        classifier.predict(TEXTS)
    assert classifier.fit(TEXTS, LABELS) is classifier
    assert list(classifier.classes_) == ["animal", "food"]
    found = classifier.predict_proba(TEXTS)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    assert classifier.score(TEXTS, LABELS) > 0.8  # 0.5 is guessing
    np.testing.assert_array_equal(copy.deepcopy(classifier).predict_proba(TEXTS), found)


def test_a_training_that_a_signal_stops_fits_nothing(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, runs: str, **__: object) -> Run:
        return Run(Path(runs) / "examples", exit_code=143)

    monkeypatch.setattr("litebert.api.estimators.finetune", stopped)
    classifier = LitebertClassifier(tiny)
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(TEXTS, LABELS)


@pytest.mark.parametrize(("texts", "labels"), [(["a"], [1, 2]), (["a", "b"], [1, 1])])
def test_what_cannot_be_fitted_is_refused(texts: list[str], labels: list[int]) -> None:
    with pytest.raises(LitebertError) as caught:
        LitebertClassifier().fit(texts, labels)
    assert caught.value.code == "LB-876"


def test_embeddings_have_the_methods_of_langchain() -> None:
    embeddings = litebert.Embeddings()
    documents = embeddings.embed_documents(TEXTS[:2])
    np.testing.assert_allclose(documents, litebert.load().embed(TEXTS[:2]), atol=1e-5)
    assert embeddings.embed_query(TEXTS[0]) == pytest.approx(documents[0], abs=1e-5)
    assert all(isinstance(x, float) for x in documents[0])
