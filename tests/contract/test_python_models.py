"""Models: loading by path, copies, the packaged model, scikit-learn and LangChain
classes, and refused arguments.
"""

import copy
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import litebert
from litebert import LitebertClassifier, LitebertError, LitebertVectorizer, Model, Run

from . import golden
from .tiny import FINETUNING, PRETRAINING, Desk, rows

TEXTS = [
    "A man is playing a guitar.",
    "Someone plays an instrument.",
    "The stock market fell.",
]
SENTENCES = [*TEXTS, "Nobody was at home.", "Where is the station?"]


def test_a_model_is_loaded_by_any_of_its_names(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.folder)
    run = desk.reviews
    expected = litebert.load(run).classify(TEXTS)
    for name in (
        run / "model",
        run / "best",
        str(run),
        "runs/reviews",
        litebert.Run.open(run),
    ):
        assert litebert.load(name).classify(TEXTS) == expected
    model = litebert.Run.open(run).model()
    assert isinstance(model, Model) and model.classify(TEXTS) == expected


def test_a_path_without_a_model_is_one_clear_error(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    (tmp_path / "empty").mkdir()
    for path in (
        tmp_path / "nowhere",
        tmp_path / "empty",
        desk.table("reviews.csv"),
        "nobody/nothing",
    ):
        with pytest.raises(LitebertError) as caught:
            litebert.load(path)
        assert Path(path).name in str(caught.value)
        assert caught.value.next


def test_bf16_is_chosen_when_a_model_is_loaded(desk: Desk) -> None:
    plain = litebert.load(desk.base).embed(TEXTS)
    half = litebert.load(desk.base, precision="bf16").embed(TEXTS)
    assert np.abs(plain - half).max() < 0.05 * np.abs(plain).max()


RUNS = {
    "base": "fill",
    "reviews": "classify",
    "tags": "tag",
    "choices": "embed",
    "spans": "embed",
}


@pytest.mark.parametrize(("run", "verb"), RUNS.items())
def test_copies_of_a_model_answer_alike(desk: Desk, run: str, verb: str) -> None:
    model = litebert.load(getattr(desk, run))
    texts = [f"{text} [MASK]" for text in TEXTS]
    for copied in (copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))):
        for _ in range(2):  # before the first answer, and after
            twin = copied(model)
            assert twin is not model and twin.verbs == model.verbs
            answers, expected = (
                getattr(copied, verb)(texts) for copied in (twin, model)
            )
            assert (
                np.array_equal(answers, expected)
                if verb == "embed"
                else answers == expected
            )


# ---- the packaged model --------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Model:
    return litebert.load()


def test_the_packaged_model_has_sixteen_megabytes_and_its_card_names_its_teachers(
    model: Model,
) -> None:
    assert not model.notes  # such as that its file has no hash
    files = [path for path in Path(model.source).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 16_000_000
    card = (Path(model.source) / "README.md").read_text(encoding="utf-8")
    assert "all-mpnet-base-v2" in card and "all-MiniLM-L6-v2" in card
    assert "license: apache-2.0" in card


def test_the_packaged_model_fills_embeds_and_predicts_the_order_of_sentences(
    model: Model,
) -> None:
    assert {"fill", "order", "embed"} <= set(model.verbs)
    assert "door" in [
        filling.words[0] for filling in model.fill("He closed the [MASK].", top=20)
    ]
    fillings = model.fill("She [MASK] the door.", top=5)
    assert len({filling.words for filling in fillings}) == 5
    assert [f.probability for f in fillings] == sorted(
        (f.probability for f in fillings), reverse=True
    )
    assert all(
        0 < f.probability < 1 and f.text == f"She {f.words[0]} the door."
        for f in fillings
    )
    assert all(f.offsets == ((4, 10),) for f in fillings)
    # texts of similar meaning are near each other
    first, second, other = model.embed(TEXTS)
    assert first @ second > first @ other + 0.2
    answer = model.order("He opened the door.", "Then he walked in and sat down.")
    assert 0.2 < answer.probability < 0.8  # a weak head with low confidence


def test_a_verb_whose_weights_a_file_lacks_is_refused(
    model: Model, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(model.source, tmp_path / "model"))
    kept = {
        name: x
        for name, x in load_file(folder / "model.safetensors").items()
        if not name.startswith("sop_")
    }
    save_file(kept, folder / "model.safetensors")
    with pytest.raises(LitebertError, match=r"LB-612[\s\S]*sentence_order"):
        litebert.load(folder).order("He opened the door.", "Nobody was there.")


def test_advice_names_the_packaged_model(model: Model) -> None:
    with pytest.raises(LitebertError, match=r"LB-615[\s\S]*model='litebert'"):
        model.classify("a")


def test_golden_vectors_of_five_sentences(model: Model) -> None:
    vectors = model.embed(SENTENCES)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    cosines = vectors @ vectors.T
    # the vectors have length 1, so a coordinate is about 0.05
    computed = {"vectors": vectors[:, :12].tolist(), "cosines": cosines.tolist()}
    assert computed == golden.expected(
        "embeddings", "packaged", computed, absolute=1e-5
    )


# ---- scikit-learn's own checks, a pipeline, copies; LangChain's two methods ----------

ANIMALS = ["a cat sleeps", "two dogs bark", "the horse runs", "a small bird sings"] * 5
FOOD = [
    "fresh bread and butter",
    "a bowl of soup",
    "ripe apples",
    "rice with beans",
] * 5
PHRASES = [*ANIMALS, *FOOD]
LABELS = ["animal"] * 20 + ["food"] * 20

# The checks that do not fit the estimator to a table of numbers: it takes texts.
CHECKS = """estimator_cloneable estimator_tags_renamed valid_tag_types estimator_repr no_attributes_set_in_init
parameters_default_constructible get_params_invariance set_params mixin_order"""  # noqa: E501


@pytest.mark.parametrize("name", CHECKS.split())
@pytest.mark.parametrize("kind", [LitebertClassifier, LitebertVectorizer])
def test_checks_of_scikit_learn(kind: type[BaseEstimator], name: str) -> None:
    getattr(estimator_checks, f"check_{name}")(kind.__name__, kind())


def test_a_pipeline_is_cross_validated() -> None:
    pipeline = make_pipeline(LitebertVectorizer(), LogisticRegression())
    assert cross_val_score(pipeline, PHRASES, LABELS, cv=2).mean() > 0.9


def test_vectors_are_those_of_embed_and_copies_load_the_model_again() -> None:
    vectorizer = LitebertVectorizer(normalize=True)
    expected = litebert.load().embed(PHRASES[:3], normalize=True)
    np.testing.assert_array_equal(vectorizer.fit_transform(PHRASES[:3]), expected)
    twin = copy.deepcopy(vectorizer)
    np.testing.assert_array_equal(twin.transform(np.array(PHRASES[:3])), expected)
    assert len(vectorizer.get_feature_names_out()) == expected.shape[1]


def test_a_classifier_learns_and_its_copy_predicts_the_same() -> None:
    # The weights are fixed and the rate has room: from 1e-4 to 5e-4, seven of eight are
    # right with each of three seeds.
    settings = {
        "optim.learning_rate": 2.5e-4,
        "train.batch_size": 8,
        "train.loader_workers": 0,
        "task.max_length": 16,
    }
    classifier = LitebertClassifier(epochs=1, settings=settings)
    with pytest.raises(NotFittedError):
        classifier.predict(PHRASES)
    with pytest.raises(LitebertError):
        classifier.fit(PHRASES, LABELS[:-1])
    with pytest.raises(NotFittedError):
        classifier.predict(PHRASES)
    assert classifier.fit(PHRASES, LABELS) is classifier and list(
        classifier.classes_
    ) == ["animal", "food"]
    probabilities = classifier.predict_proba(PHRASES)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert classifier.score(PHRASES, LABELS) > 0.8  # 0.5 is guessing
    for twin in (copy.deepcopy(classifier), pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(twin.predict_proba(PHRASES), probabilities)
    words = ["train.steps=1", "train.batch_size=8", "train.loader_workers=0"]
    # a column
    classifier.set_params(epochs=None, settings=words).fit(
        PHRASES, np.reshape(LABELS, (-1, 1))
    )
    before = classifier.predict_proba(PHRASES[:2])
    with pytest.raises(LitebertError):
        classifier.fit(PHRASES, LABELS[:-1])  # the fitted model stays
    np.testing.assert_array_equal(classifier.predict_proba(PHRASES[:2]), before)
    # from scikit-learn: each text has a class of its own
    with pytest.warns(UserWarning, match="unique classes"):
        classifier.fit(PHRASES, np.arange(len(PHRASES)))
    assert classifier.predict_proba(PHRASES[:2]).shape == (2, len(PHRASES))


def test_embeddings_have_the_methods_of_langchain() -> None:
    embeddings = litebert.Embeddings()
    documents = embeddings.embed_documents(PHRASES[:2])
    np.testing.assert_allclose(documents, litebert.load().embed(PHRASES[:2]), atol=1e-5)
    assert embeddings.embed_query(PHRASES[0]) == pytest.approx(documents[0], abs=1e-5)
    assert all(isinstance(x, float) for x in documents[0])


# ---- trainings that diverge ----------------------------------------------------------


def test_a_diverging_loss_is_reported_and_an_earlier_checkpoint_is_kept(
    desk: Desk, tmp_path: Path, capfd
) -> None:
    run = desk.pretrain(
        tmp_path,
        **{"optim.name": "adamw", "optim.learning_rate": 10, "optim.warmup_steps": 4},
        **{"train.steps": 24, "train.save_every": 2, "train.eval_every": 24},
    )
    losses = {
        row["step"]: row["masked_lm_loss"]
        for row in rows(run)
        if row["kind"] == "train"
    }
    assert losses[24] > 10 * losses[1]
    said = capfd.readouterr().err
    assert "diverges" in said and "learning_rate" in said
    kept = [
        int(path.name.removeprefix("step-"))
        for path in (run.folder / "checkpoints").iterdir()
    ]
    assert min(losses[step] for step in kept) < 2 * losses[1], (kept, losses)


def test_explained_words_are_those_of_the_text_even_after_a_prompt(
    tmp_path: Path,
) -> None:
    plain = litebert.load()
    prompted = shutil.copytree(plain.source, tmp_path / "prompted")
    settings = json.loads(
        (prompted / "config_sentence_transformers.json").read_text("utf-8")
    )
    settings |= {"prompts": {"query": "find this: "}, "default_prompt_name": "query"}
    (prompted / "config_sentence_transformers.json").write_text(json.dumps(settings))
    texts = {"first": "Anna left.", "second": "Bert came."}
    model = litebert.load(prompted)
    assert not np.allclose(
        model.embed("Anna left."), plain.embed("Anna left."), atol=1e-3
    )
    explanation = model.explain("similar", *texts.values())
    assert [
        word.word
        for word in explanation.words
        if word.part == "prompt" and word.word.strip()
    ] == ["find", "this:"] * 2
    words = [(word.part, word.word) for word in explanation.words if word.part in texts]
    assert words == [
        ("first", "Anna"),
        ("first", "left."),
        ("second", "Bert"),
        ("second", "came."),
    ]
    assert all(
        texts[word.part][word.start : word.end] == word.word
        for word in explanation.words
        if word.part in texts
    )
    assert explanation.score == pytest.approx(model.similar(*texts.values()), abs=1e-4)


# ---- what functions take, and what they refuse ---------------------------------------


def test_runs_and_whole_numbers_of_any_type_are_accepted(
    desk: Desk, tmp_path: Path
) -> None:
    base = Run.open(desk.base)
    reviews = Run.open(desk.reviews)
    table = desk.table("reviews.csv")
    assert litebert.load(reviews).verbs
    assert litebert.evaluate([reviews, desk.reviews], data=table, quiet=True).measures
    assert litebert.predict(reviews, data=table, quiet=True).rows
    arguments = {"runs": tmp_path, "quiet": True}
    settings = {**FINETUNING, "train.steps": 2, "data.dev": table}
    # the second finds the runs of the first
    for seeds in (list(np.arange(1, 3)), range(1, 3)):
        assert litebert.finetune(
            str(table), model=base, seeds=seeds, settings=settings, **arguments
        ).is_finished
    shape = {
        name: value
        for name, value in PRETRAINING.items()
        if not name.startswith("model.")
    }
    assert litebert.pretrain(
        corpus=desk.corpus, start=base, settings=shape, **arguments
    ).is_finished
    small = {**shape, "train.steps": 2, "distil.texts": 4, "distil.text_length": 16}
    assert litebert.distil(
        base, corpus=desk.corpus, settings=small, **arguments
    ).is_finished
    assert len(litebert.load(base).fill("Anna [MASK].", top=np.int64(2))) == 2
    assert litebert.load(base).embed("Anna left.", max_length=np.int32(4)).shape == (
        32,
    )


def test_a_row_without_a_word_has_no_answer(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text,label\nAnna,good\n"   ",bad\n"",good\n')
    ((first, *others),) = litebert.predict(
        desk.reviews, data=tmp_path / "t.csv", quiet=True
    ).rows.values()
    assert first.answer and not any(row.answer for row in others)


WRONG: dict[str, Callable[[], object]] = {
    "a model that is a number": lambda: litebert.load(5),
    "a preset that is a number": lambda: litebert.preset(5),
    "a tokenizer that is a number": lambda: litebert.Tokenizer.load(5),
    "no texts": lambda: litebert.pretrain(None),
    "texts that are numbers": lambda: litebert.pretrain([5]),
    "settings in one string": lambda: litebert.pretrain(
        "t.txt", settings="train.steps=5"
    ),
    "a name that is a number": lambda: litebert.pretrain("t.txt", name=5),
    "a share above 1": lambda: litebert.pretrain("t.txt", held_out=2),
    "two lengths": lambda: litebert.pretrain(
        "t.txt", minutes=1, settings={"train.steps": 5}
    ),
    "an unknown objective": lambda: litebert.pretrain(
        "t.txt", settings=["objective.sentence=foo"], quiet=True
    ),
    "no such mix": lambda: litebert.pretrain(
        "t.txt", settings={"data.mix": ["nope"]}, quiet=True
    ),
    "nothing held out": lambda: litebert.pretrain("t.txt", held_out=0, quiet=True),
    "long": lambda: litebert.pretrain(
        "t.txt", start="litebert", settings=["objective.max_seq_length=999"], quiet=True
    ),
    "epochs and steps": lambda: litebert.finetune(
        "t.csv", epochs=5, settings={"train.steps": 1}
    ),
    "a run that is a number": lambda: Run.open(5),
    "a run that does not exist": lambda: litebert.Run("runs/typo"),
    "a seed twice": lambda: litebert.finetune("t.csv", seeds=[1, 1]),
    "a file of a named task": lambda: litebert.finetune("rte", data=".", dev="t.csv"),
    "no task": lambda: litebert.finetune(None),
    "seeds that are words": lambda: litebert.finetune("t.csv", seeds=["a"]),
    "seeds in one string": lambda: litebert.finetune("t.csv", seeds="1,2"),
    "columns that are a number": lambda: litebert.finetune("t.csv", columns=5),
    "no model to evaluate": lambda: litebert.evaluate([]),
    "data that are a number": lambda: litebert.evaluate("m", data=5),
    "more labels than texts": lambda: LitebertClassifier().fit(["a"], [1, 2]),
    "a single label to learn": lambda: LitebertClassifier().fit(["a", "b"], [1, 1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_type_is_refused_before_any_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("A cat sat.\n\nA dog ran.\n")
    Path("t.csv").write_text("text,label\na cat,x\na dog,y\n")
    with pytest.raises(LitebertError) as caught:
        WRONG[name]()
    assert caught.value.next
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.txt"]


def test_public_names_are_listed_before_they_are_imported() -> None:
    assert set(litebert.__all__) <= set(dir(litebert))
    assert all(getattr(litebert, name) for name in litebert.__all__)
    assert litebert.preset("base-v2").hidden_size == 768
    with pytest.raises(AttributeError):
        _ = litebert.nothing


def test_an_error_has_its_parts_and_advice_names_the_function_that_was_called() -> None:
    with pytest.raises(LitebertError) as caught:
        litebert.preset("bsae-v2")
    error = caught.value
    assert error.code.startswith("LB-")
    assert all(
        part in str(error)
        for part in ("bsae-v2", "base-v2", error.code, error.what, error.next)
    )
    for function in (litebert.evaluate, litebert.predict, litebert.finetune):
        with pytest.raises(LitebertError) as caught:
            function(5)
        assert (
            function.__name__ in caught.value.next
            and "pretrain" not in caught.value.next
        )


# ---- other processes and devices -----------------------------------------------------


@pytest.mark.gpu
def test_every_training_runs_on_a_gpu(desk: Desk, tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    arguments = {
        "runs": tmp_path,
        "settings": {**PRETRAINING, "train.device": "cuda"},
        "quiet": True,
    }
    assert desk.finetune(
        tmp_path, settings={**FINETUNING, "train.device": "cuda"}
    ).is_finished
    assert litebert.distil(desk.base, corpus=desk.corpus, **arguments).is_finished
    assert litebert.pretrain(corpus=desk.corpus, **arguments).is_finished
