"""The verbs of a loaded model, on strings."""

from pathlib import Path

import numpy as np
import pytest
import torch

import litebert
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a random model with the stories' vocabulary."""
    path = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    network = AlbertForPretraining(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(1))
    save_model(network, path)
    tokenizer.save(path)
    return path


def test_fill_ranks_words_by_the_probability_of_the_network(folder: Path) -> None:
    model = litebert.load(folder)
    fillings = model.fill("Anna walked to the [MASK].", top=3)
    assert [f.text for f in fillings] == [f"Anna walked to the {f.words[0]}." for f in fillings]
    probabilities = [f.probability for f in fillings]
    assert probabilities == sorted(probabilities, reverse=True)
    everything = model.fill("Anna walked to the [MASK].", top=1_000)
    assert sum(f.probability for f in everything) == pytest.approx(1, abs=1e-4)
    assert len(everything) == model.tokenizer.vocab_size - 5


def test_two_blanks_are_filled_together(folder: Path) -> None:
    best = litebert.load(folder).fill("[MASK] walked to the [MASK].", top=4)
    assert len(best) == 4
    assert all(len(filling.words) == 2 and "[MASK]" not in filling.text for filling in best)


def test_a_text_without_a_blank_is_refused(folder: Path) -> None:
    with pytest.raises(LitebertError, match="LB-610"):
        litebert.load(folder).fill("Anna walked home.")


def test_order_is_the_softmax_of_the_head(folder: Path) -> None:
    model = litebert.load(folder)
    answer = model.order("Anna walked.", "Bert slept.")
    encoding = model.tokenizer.encode("Anna walked.", "Bert slept.")
    batch = Batch.from_lists([encoding.ids], [encoding.segments])
    with torch.no_grad():
        logits = model.network(batch, torch.zeros(0, dtype=torch.int64)).sentence_order
    assert answer.probability == pytest.approx(float(logits.softmax(-1)[0, 0]), abs=1e-6)
    assert answer.is_in_order == (answer.probability >= 0.5)


def test_embeddings_do_not_depend_on_the_company(folder: Path) -> None:
    model = litebert.load(folder)
    texts = ["Anna walked.", "Then Bert found three apples under a tree.", "", "No"]
    together = model.embed(texts)
    assert together.shape == (4, 32)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(model.embed([text])[0], vector, atol=1e-5)
    assert not np.allclose(model.embed(texts, pooling="cls"), together)


def test_one_string_is_not_a_list_of_texts(folder: Path) -> None:
    with pytest.raises(LitebertError, match="LB-611"):
        litebert.load(folder).embed("a text")


def test_a_text_longer_than_the_model_is_cut(folder: Path) -> None:
    model = litebert.load(folder)
    long = "Anna walked to the garden. " * 100
    assert model.embed([long]).shape == (1, 32)
    assert 0 <= model.order(long, "Bert slept.").probability <= 1


def test_a_missing_head_is_named_when_its_verb_is_called(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    litebert.load(folder).tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    tensors = load_file(folder / "model.safetensors")
    kept = {n: t for n, t in tensors.items() if not n.startswith(("sop", "albert.pooler"))}
    save_file(kept, tmp_path / "model.safetensors")
    model = litebert.load(tmp_path)
    assert len(model.fill("Anna [MASK].")) == 5
    with pytest.raises(LitebertError, match=r"LB-612[\s\S]*sentence_order"):
        model.order("a", "b")


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-620"):
        litebert.load(tmp_path / "nowhere")


def test_the_public_face_is_what_design_says() -> None:
    assert litebert.Albert is Albert
    assert litebert.Lamb.__name__ == "Lamb"
    assert litebert.preset("base-v2").hidden_size == 768
    with pytest.raises(AttributeError):
        _ = litebert.nothing
