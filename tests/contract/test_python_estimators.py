"""scikit-learn's view of litebert: its own checks, a pipeline, copies; LangChain's two methods."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import litebert
from litebert import LitebertClassifier, LitebertError, LitebertVectorizer

ANIMALS = ["a cat sleeps", "two dogs bark", "the horse runs", "a small bird sings"] * 5
FOOD = ["fresh bread and butter", "a bowl of soup", "ripe apples", "rice with beans"] * 5
TEXTS, LABELS = [*ANIMALS, *FOOD], ["animal"] * 20 + ["food"] * 20

# The checks that do not fit the estimator to a table of numbers, which no text is.
CHECKS = """estimator_cloneable estimator_tags_renamed valid_tag_types estimator_repr no_attributes_set_in_init
parameters_default_constructible get_params_invariance set_params mixin_order"""


@pytest.mark.parametrize("name", CHECKS.split())
@pytest.mark.parametrize("kind", [LitebertClassifier, LitebertVectorizer])
def test_checks_of_scikit_learn(kind: type[BaseEstimator], name: str) -> None:
    getattr(estimator_checks, f"check_{name}")(kind.__name__, kind())


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


def test_a_classifier_learns_and_its_copy_predicts_the_same() -> None:
    # From fixed weights, at a rate with room: from 1e-4 to 5e-4, seven in eight are right with each of three seeds.
    settings = {"optim.learning_rate": 2.5e-4, "train.batch_size": 8, "train.loader_workers": 0, "task.max_length": 16}
    classifier = LitebertClassifier(epochs=1, settings=settings)
    with pytest.raises(NotFittedError):
        classifier.predict(TEXTS)
    assert classifier.fit(TEXTS, LABELS) is classifier
    assert list(classifier.classes_) == ["animal", "food"]
    found = classifier.predict_proba(TEXTS)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    assert classifier.score(TEXTS, LABELS) > 0.8  # 0.5 is guessing
    for twin in (copy.deepcopy(classifier), pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(twin.predict_proba(TEXTS), found)


@pytest.mark.parametrize(("texts", "labels"), [(["a"], [1, 2]), (["a", "b"], [1, 1])])
def test_what_cannot_be_fitted_is_refused(texts: list[str], labels: list[int]) -> None:
    with pytest.raises(LitebertError) as caught:
        LitebertClassifier().fit(texts, labels)
    assert caught.value.next


def test_embeddings_have_the_methods_of_langchain() -> None:
    embeddings = litebert.Embeddings()
    documents = embeddings.embed_documents(TEXTS[:2])
    np.testing.assert_allclose(documents, litebert.load().embed(TEXTS[:2]), atol=1e-5)
    assert embeddings.embed_query(TEXTS[0]) == pytest.approx(documents[0], abs=1e-5)
    assert all(isinstance(x, float) for x in documents[0])
