"""Explanations: attributions add up, point at the words that decide, and refuse nonsense."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch

import litebert
from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.inference import Model
from litebert.inference.explain import with_words
from litebert.inference.finetuned import quantize
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch
from litebert.tokenizer import Tokenizer, train_tokenizer

from .random_model import CHOICES, LABELS, SHAPE, SPANS, SPANS_OR_NONE

TEXTS = ["a small cat sat on a mat", "a fine film, a dull play", "who sat on the mat?"]


SEVERAL = LABELS.model_copy(update={"problem_type": "multi_label_classification"})
NUMBER = LABELS.model_copy(update={"labels": ("score",), "problem_type": "regression"})


@cache
def _model(head: HeadConfig | None) -> Model:
    tokenizer = Tokenizer.from_model(train_tokenizer(TEXTS * 20, vocab_size=38))
    shape = {**SHAPE, "vocab_size": tokenizer.vocab_size, "max_position_embeddings": 48, "initializer_range": 0.2}
    config, draws = AlbertConfig(**shape), torch.Generator().manual_seed(1)
    network = AlbertForTask(config, head, generator=draws) if head else AlbertForPretraining(config, generator=draws)
    return Model(network, tokenizer)


CASES = {
    "fill": (None, ["a [MASK] cat sat on a [MASK]"]),
    "order": (None, TEXTS[:2]),
    "similar": (None, TEXTS[:2]),
    "classify": (LABELS, [TEXTS[1]]),
    "classify a pair": (LABELS, TEXTS[:2]),
    "classify with several labels": (SEVERAL, [TEXTS[1]]),
    "classify as a number": (NUMBER, [TEXTS[1]]),
    "choose": (CHOICES, ["who sat?", TEXTS[0], "a cat", "a dog"]),
    "answer": (SPANS, [TEXTS[2], TEXTS[0]]),
    "answer or none": (SPANS_OR_NONE, [TEXTS[2], " ".join(TEXTS * 4)]),
}


@pytest.mark.parametrize("case", CASES)
def test_attributions_add_up_and_name_every_word(case: str) -> None:
    head, texts = CASES[case]
    found = _model(head).explain(case.split()[0], *texts)
    total = sum(word.attribution for word in found.words)
    assert total == pytest.approx(found.score - found.blank, abs=0.02 + abs(found.error))
    assert abs(found.error) < 0.02
    assert any(abs(word.attribution) > 1e-4 for word in found.words)
    assert all(word.word and word.end - word.start == len(word.word) for word in found.words)
    assert found.verb == case.split()[0]


def test_the_score_is_that_of_the_verbs_answer() -> None:
    model = _model(LABELS)
    found, given = model.explain("classify", TEXTS[1]), model.classify(TEXTS[1])
    assert found.answer == given.labels[0]
    expected = torch.tensor(given.values[found.answer]).log()
    torch.testing.assert_close(torch.tensor(found.score), expected, atol=1e-4, rtol=0)
    other = next(label for label in given.values if label != found.answer)
    assert model.explain("classify", TEXTS[1], answer=other).score < found.score


def test_the_network_that_threads_share_stays_as_it_is() -> None:
    model = _model(None)
    before, batch = model.embed(TEXTS), Batch.from_lists([[2, 7, 3]])
    view = with_words(model.network, torch.zeros(3, 16))
    with torch.no_grad():
        assert not torch.equal(view.albert(batch), model.network.albert(batch))
    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(lambda _: model.explain("similar", *TEXTS[:2]), range(3)))) == 1
    assert (model.embed(TEXTS) == before).all()
    assert all(parameter.grad is None for parameter in model.network.parameters())


@pytest.mark.parametrize(
    ("verb", "texts", "answer", "code"),
    [
        ("similer", TEXTS[:2], None, "LB-873"),
        ("similar", TEXTS[:1], None, "LB-874"),
        ("order", TEXTS[:2], "sideways", "LB-875"),
        ("fill", ["a [MASK] cat"], "two words", "LB-875"),
        ("fill", ["a [MASK] cat"], "zebra", "LB-875"),
        ("fill", ["a cat"], None, "LB-610"),
        ("classify", TEXTS[:1], None, "LB-615"),
        ("similar", ["a", 3], None, "LB-611"),
    ],
)
def test_what_cannot_be_explained_is_refused(verb: str, texts: list[str], answer: str | None, code: str) -> None:
    with pytest.raises(LitebertError, match=code):
        _model(None).explain(verb, *texts, answer=answer)


def test_eight_bits_have_no_gradients(tmp_path: Path) -> None:
    model = _model(None)
    save_model(model.network, tmp_path / "float")
    model.tokenizer.save(tmp_path / "float")
    quantize(tmp_path / "float", tmp_path / "int8", texts=TEXTS * 20)
    with pytest.raises(LitebertError, match="LB-872"):
        litebert.load(tmp_path / "int8").explain("similar", *TEXTS[:2])
