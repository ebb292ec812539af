"""The verbs of fine-tuned heads, on strings; and what a model says that lacks the head."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import litebert
from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.inference import Model
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.spans import ConditionalSpanHead
from litebert.tokenizer import Tokenizer

Make = Callable[[HeadConfig], Model]
CONTEXT = "In the morning Anna walked to the house. There Anna found a red ball."


@pytest.fixture
def make(corpus: Path, tmp_path: Path) -> Make:
    """Return a function that writes a random model with a head and loads it."""
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=48,
    )

    def load(head: HeadConfig) -> Model:
        network = AlbertForTask(config, head)
        generator = torch.Generator().manual_seed(1)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)
        save_model(network, tmp_path)
        tokenizer.save(tmp_path)
        return litebert.load(tmp_path)

    return load


@torch.no_grad()
def _logits(model: Model, text: str, pair: str | None = None) -> list[float]:
    encoding = model.tokenizer.encode(text, pair, frame=True)
    values: list[float] = model.network(Batch.from_lists([encoding.ids], [encoding.segments]))[0]
    return values


def test_classify_gives_the_networks_probabilities(make: Make) -> None:
    model = make(HeadConfig(kind="sequence-classification", labels=("no", "yes")))
    first, second = model.classify(["Anna found it.", "Nobody knew."], ["A ball.", "Who?"])
    expected = torch.softmax(_logits(model, "Anna found it.", "A ball."), -1)
    assert list(first.values.values()) == pytest.approx(expected.tolist(), abs=1e-5)
    assert first.labels == (max(first.values, key=first.values.__getitem__),)
    assert second.values.keys() == {"no", "yes"}
    assert model.verbs == ("classify", "embed")


def test_a_score_and_several_labels_are_read_as_trained(make: Make) -> None:
    problem = {"labels": ("score",), "problem_type": "regression"}
    score = make(HeadConfig(kind="sequence-classification", **problem))
    (found,) = score.classify(["Anna found it."])
    assert found.values["score"] == pytest.approx(float(_logits(score, "Anna found it.")[0]), abs=1e-5)
    problem = {"labels": ("a", "b", "c"), "problem_type": "multi_label_classification"}
    several = make(HeadConfig(kind="sequence-classification", **problem))
    (found,) = several.classify(["Anna found it."])
    expected = torch.sigmoid(_logits(several, "Anna found it."))
    assert list(found.values.values()) == pytest.approx(expected.tolist(), abs=1e-5)
    assert found.labels == tuple(n for n, value in found.values.items() if value >= 0.5)


def test_tag_answers_every_word_of_texts_of_any_length(make: Make) -> None:
    model = make(HeadConfig(kind="token-classification", labels=("O", "B-PER")))
    long = " ".join([CONTEXT] * 12)
    short, tagged = model.tag(["Anna walked.", long])
    assert [each.word for each in short] == ["Anna", "walked", "."]
    assert "".join(each.word for each in tagged) == long.replace(" ", "")
    assert {each.tag for each in tagged} <= {"O", "B-PER"}


def test_choose_takes_any_number_of_choices(make: Make) -> None:
    model = make(HeadConfig(kind="multiple-choice"))
    for choices in (["a ball", "a map"], ["one", "two", "three", "four", "five", "six"]):
        chosen = model.choose("What did Anna find?", choices, context=CONTEXT)
        assert sum(chosen.probabilities) == pytest.approx(1)
        assert len(chosen.probabilities) == len(choices)
        assert chosen.text == choices[chosen.index]


def test_a_model_that_can_tell_says_that_there_is_no_answer(make: Make) -> None:
    model = make(HeadConfig(kind="conditional-question-answering"))
    assert isinstance(model.network, AlbertForTask)
    head = model.network.head
    assert isinstance(head, ConditionalSpanHead)
    for sign in (1, -1):
        with torch.no_grad():
            head.answer_hidden.weight.zero_()
            head.answer_hidden.bias.fill_(2.0)
            head.answer.weight.fill_(sign * 1.0)
        (best,) = model.answer("Who?", CONTEXT)
        assert (best.text == "") == (sign == 1)


@pytest.mark.parametrize("kind", ["question-answering", "conditional-question-answering"])
def test_several_documents_are_one_ranking(make: Make, kind: str) -> None:
    model = make(HeadConfig(kind=kind))
    documents = ["Bert slept. Nobody knew.", CONTEXT]
    found = model.answer("What did Anna find?", documents, top=200)
    assert {each.document for each in found} == {0, 1}
    assert sum(each.probability for each in found) == pytest.approx(1, abs=1e-4)
    spans = [each for each in found if each.text]
    assert all(documents[s.document][s.start : s.stop].strip() == s.text for s in spans)
    assert (found[0].no_answer is None) == (kind == "question-answering")


def test_tags_say_where_their_words_are(make: Make) -> None:
    model = make(HeadConfig(kind="token-classification", labels=("O", "B-PER")))
    text = "  Anna walked. "
    assert [text[each.start : each.end] for each in model.tag(text)] == ["Anna", "walked", "."]


def test_a_verb_without_its_head_says_what_the_model_has(make: Make) -> None:
    model = make(HeadConfig(kind="multiple-choice"))
    for ask in (lambda: model.classify(["a"]), lambda: model.tag(["a"]), lambda: model.answer("a", "b")):
        with pytest.raises(LitebertError, match=r"LB-615[\s\S]*multiple-choice"):
            ask()
    with pytest.raises(LitebertError, match=r"LB-612[\s\S]*multiple-choice"):
        model.fill("[MASK]")
    with pytest.raises(LitebertError, match="LB-930"):
        model.choose("Who?", "Anna")
    assert model.embed(["Anna", "Bert"]).shape == (2, 32)
