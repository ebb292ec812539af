"""The model that comes with the package: small, useful without a path, read by others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import litebert
from litebert.api.held_out import measure_pretraining
from litebert.errors import LitebertError
from litebert.hub import packaged_model
from litebert.inference import Model
from litebert.tokenizer import Tokenizer

TEXTS = ["A man is playing a guitar.", "Someone plays an instrument.", "The stock market fell."]


@pytest.fixture(scope="module")
def model() -> Model:
    return litebert.load()


def test_it_takes_eight_megabytes_at_most() -> None:
    files = [path for path in packaged_model().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 8_000_000


def test_verbs_work_without_a_path(model: Model) -> None:
    assert {"fill", "embed"} <= set(model.verbs)
    words = [filling.words[0] for filling in model.fill("He closed the [MASK].", top=20)]
    assert "door" in words


def test_it_does_not_guess_what_it_has_not_learnt(model: Model) -> None:
    with pytest.raises(LitebertError, match="LB-612"):
        model.order("He opened the door.", "Nobody was there.")


def test_texts_of_like_meaning_are_near(model: Model) -> None:
    first, second, other = model.embed(TEXTS)
    assert first @ second > first @ other + 0.2


def test_transformers_computes_the_same() -> None:
    from transformers import AlbertModel, AutoTokenizer

    folder = packaged_model()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = AlbertModel.from_pretrained(folder, dtype=torch.float32).eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    means = (hidden * mask).sum(1) / mask.sum(1)
    wanted = torch.nn.functional.normalize(means).numpy()
    np.testing.assert_allclose(litebert.load().embed(TEXTS), wanted, atol=1e-5)


def test_sentence_transformers_gives_the_same_vectors(model: Model) -> None:
    import sentence_transformers

    theirs = sentence_transformers.SentenceTransformer(str(packaged_model()), device="cpu")
    vectors = theirs.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(model.embed(TEXTS), vectors, atol=1e-5)


def test_a_build_without_a_model_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.hub.location.files", lambda _: tmp_path)
    with pytest.raises(LitebertError, match="LB-938"):
        packaged_model()


def test_its_card_says_what_it_was_made_of() -> None:
    card = (Path(packaged_model()) / "README.md").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in card
    assert "license: apache-2.0" in card


def test_its_words_can_be_measured_though_it_has_no_order(tmp_path: Path) -> None:
    text = "The train was late. Nobody seemed surprised.\n\nThe river rose. The bridge was gone.\n"
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    measures, _ = measure_pretraining(packaged_model(), [tmp_path / "text.txt"])
    assert 0 < measures["masked_lm_loss"] < 15
    assert not any("order" in name for name in measures)


def test_a_text_of_another_script_is_remarked_once(caplog: pytest.LogCaptureFixture) -> None:
    strange = ["собака бежит", "我爱北京", "🎉", "مرحبا بالعالم"]
    plain = ["A small cat.", "xkcd", "Great 🎉!", "2010, 1,000", "Der Hund läuft durch den Wald", "[MASK]", "ok", ""]
    tokenizer = Tokenizer.load(packaged_model())
    assert [text for text in strange + plain if tokenizer.reads_in_fragments(text)] == strange
    model = Model.load()
    model.embed(plain[:3])
    assert not caplog.records
    model.similar(*strange[:2])
    model.embed(strange)
    assert len(caplog.records) == 1 and "vocabulary" in caplog.text
