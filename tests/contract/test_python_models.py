"""Models: whatever a path may name is loaded, copies answer alike, and one model comes with the package."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import litebert
from litebert import LitebertError, Model

from . import golden
from .tiny import Desk

TEXTS = ["A man is playing a guitar.", "Someone plays an instrument.", "The stock market fell."]
SENTENCES = [*TEXTS, "Nobody was at home.", "Where is the station?"]


def test_what_names_a_model_is_loaded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.folder)
    run = desk.reviews
    expected = litebert.load(run).classify(TEXTS)
    for name in (run / "model", run / "best", str(run), "runs/reviews", litebert.Run.open(run)):
        assert litebert.load(name).classify(TEXTS) == expected
    found = litebert.Run.open(run).model()
    assert isinstance(found, Model) and found.classify(TEXTS) == expected


def test_what_names_no_model_is_one_clear_error(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "nowhere", tmp_path / "empty", desk.table("reviews.csv"), "nobody/nothing"):
        with pytest.raises(LitebertError) as caught:
            litebert.load(path)
        assert Path(path).name in str(caught.value)
        assert caught.value.next


def test_bf16_and_depth_are_chosen_when_a_model_is_loaded(desk: Desk) -> None:
    plain, half = litebert.load(desk.base).embed(TEXTS), litebert.load(desk.base, precision="bf16").embed(TEXTS)
    assert np.abs(plain - half).max() < 0.05 * np.abs(plain).max()
    assert not np.array_equal(litebert.load(desk.base, depth=1).embed(TEXTS), plain)
    np.testing.assert_array_equal(litebert.load(desk.base, depth=2).embed(TEXTS), plain)


RUNS = {"base": "fill", "reviews": "classify", "tags": "tag", "choices": "embed", "spans": "embed"}


@pytest.mark.parametrize(("run", "verb"), RUNS.items())
def test_copies_of_a_model_answer_alike(desk: Desk, run: str, verb: str) -> None:
    model = litebert.load(getattr(desk, run))
    texts = [f"{text} [MASK]" for text in TEXTS]
    for copied in (copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))):
        for _ in range(2):  # before the first answer, and after
            twin = copied(model)
            assert twin is not model
            assert twin.verbs == model.verbs
            found, expected = (getattr(each, verb)(texts) for each in (twin, model))
            assert np.array_equal(found, expected) if verb == "embed" else found == expected


# ---- the packaged model ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Model:
    return litebert.load()


def test_it_takes_eight_megabytes_at_most_and_its_card_says_what_it_was_made_of(model: Model) -> None:
    assert not model.notes  # such as that its file has no hash
    files = [path for path in Path(model.source).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 8_000_000
    card = (Path(model.source) / "README.md").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in card
    assert "license: apache-2.0" in card


def test_it_fills_and_embeds_and_does_not_guess_what_it_has_not_learnt(model: Model) -> None:
    assert {"fill", "embed"} <= set(model.verbs)
    assert "door" in [filling.words[0] for filling in model.fill("He closed the [MASK].", top=20)]
    found = model.fill("She [MASK] the door.", top=5)
    assert len({filling.words for filling in found}) == 5
    assert [f.probability for f in found] == sorted((f.probability for f in found), reverse=True)
    assert all(0 < f.probability < 1 and f.text == f"She {f.words[0]} the door." for f in found)
    assert all(f.offsets == ((4, 10),) for f in found)
    first, second, other = model.embed(TEXTS)  # texts of like meaning are near
    assert first @ second > first @ other + 0.2
    with pytest.raises(LitebertError, match=r"LB-612[\s\S]*sentence_order"):
        model.order("He opened the door.", "Nobody was there.")


def test_golden_vectors_of_five_sentences(model: Model) -> None:
    vectors = model.embed(SENTENCES)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    found = {"vectors": [[float(x) for x in row[:12]] for row in vectors]}
    found["cosines"] = [[float(x) for x in row] for row in vectors @ vectors.T]
    assert found == golden.expected("embeddings", "packaged", found, rel=1e-4, is_exact=False)
