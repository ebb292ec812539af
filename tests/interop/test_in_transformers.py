"""`litebert.optimize`: transformers' models give the same numbers with our engine behind them."""

import copy
import inspect
from collections.abc import Callable

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import litebert
from litebert.errors import LitebertError
from litebert.hub import packaged_model
from litebert.interop.in_transformers import EngineForward
from litebert.nn import Batch

from .transformers_models import random_model

HEADS = ("Model", "ForPreTraining", "ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering")
MODELS = [(f"{family}{head}", {}) for family in ("Albert", "Bert") for head in HEADS]
MODELS.append(("AlbertModel", {"num_hidden_groups": 3, "inner_group_num": 2, "embedding_size": 32}))


def _inputs() -> dict[str, Tensor]:
    ids = torch.randint(5, 90, (4, 12), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(12) < torch.tensor([12, 5, 9, 1])[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask * (torch.arange(12) >= 4)}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Return a function that says whether the engine has computed since it was last asked."""
    calls, original = list[int](), Batch.from_padded
    monkeypatch.setattr(Batch, "from_padded", lambda *rows: calls.append(1) or original(*rows))
    return lambda: bool([calls.pop() for _ in list(calls)])


@pytest.mark.parametrize(("name", "changes"), MODELS)
@torch.no_grad()
def test_every_head_gives_what_it_gave(name: str, changes: dict[str, int], used: Callable[[], bool]) -> None:
    model, inputs = random_model(name, **changes), _inputs()
    expected, mask = model(**inputs), inputs["attention_mask"].bool()
    alone = model(inputs["input_ids"], return_dict=False)  # without a mask, and as a tuple
    litebert.optimize(model)
    found, again = model(**inputs), model(inputs["input_ids"], return_dict=False)
    assert used() and type(found) is type(expected) and found.keys() == expected.keys()
    assert isinstance(again, tuple) and len(again) == len(alone)
    for key, value in expected.items():  # of what has a row a token, the real tokens
        rows = mask if value.shape[:2] == mask.shape else slice(None)
        torch.testing.assert_close(found[key][rows], value[rows], atol=1e-5, rtol=0, msg=key)
    for ours, theirs in zip(again, alone, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@torch.no_grad()
def test_what_the_engine_does_not_compute_is_the_originals(used: Callable[[], bool]) -> None:
    model, inputs = litebert.optimize(random_model("AlbertModel")), _inputs()
    for others, change in (
        ({name: values.flip(1) for name, values in inputs.items()}, None),  # padding on the left
        ({"inputs_embeds": model.embeddings.word_embeddings(inputs["input_ids"])}, None),
        (inputs | {"output_attentions": True}, None),
        (inputs | {"output_hidden_states": True}, None),
        (inputs, model.bfloat16),
        (inputs, lambda: model.encoder.register_forward_hook(lambda *_: None)),
    ):
        model(**inputs)
        assert used()
        if change:
            change()
        found, expected = model(**others), model.forward.original(**others)
        assert not used() and found.keys() == expected.keys()
        assert torch.equal(found.pooler_output, expected.pooler_output)
        model.float()


def test_training_and_gradients_are_the_originals(used: Callable[[], bool]) -> None:
    model, inputs = random_model("AlbertForSequenceClassification"), _inputs()
    twin = copy.deepcopy(model)
    litebert.optimize(model)
    for one in (model.train(), twin.train()):
        torch.manual_seed(1)
        one(**inputs, labels=torch.tensor([0, 1, 0, 1])).loss.backward()
    gradients = [(ours.grad, theirs.grad) for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True)]
    assert not used() and all(a is b is None or torch.equal(a, b) for a, b in gradients)


@torch.no_grad()
def test_new_weights_count_at_once_and_a_copy_has_its_own(used: Callable[[], bool]) -> None:
    model, inputs = litebert.optimize(random_model("AlbertModel")), _inputs()
    before = model(**inputs)[1]
    twin = copy.deepcopy(model)
    for parameter in twin.parameters():
        parameter.zero_()
    assert torch.equal(model(**inputs)[1], before) and not twin(**inputs)[1].any()
    for parameter in model.parameters():
        parameter.mul_(1.1)
    assert used()
    after = model(**inputs)[1]
    assert used() and not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(after, model.forward.original(**inputs)[1], atol=1e-5, rtol=0)


@torch.no_grad()
def test_pipelines_and_sentence_transformers_run_on_the_engine(used: Callable[[], bool]) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["The cat sat on the [MASK].", "Paris is the [MASK] of a much larger country."]
    pipe = hf.pipeline("fill-mask", model=str(packaged_model()), batch_size=2, device="cpu")
    expected = pipe(texts)
    litebert.optimize(pipe)
    for ours, theirs in zip(pipe(texts), expected, strict=True):
        assert [each["token"] for each in ours] == [each["token"] for each in theirs]
        assert [each["score"] for each in ours] == pytest.approx([each["score"] for each in theirs], abs=1e-5)
    assert used()
    model = SentenceTransformer(str(packaged_model()), device="cpu")
    vectors = model.encode(texts)
    litebert.optimize(model)
    assert abs(model.encode(texts) - vectors).max() < 1e-5
    assert used()


def test_the_signature_stays_twice_is_once_and_other_models_are_refused() -> None:
    model = random_model("BertModel")
    expected = inspect.signature(model.forward)
    litebert.optimize(litebert.optimize(model))
    assert inspect.signature(model.forward) == expected
    assert not isinstance(model.forward.original, EngineForward)
    for other in (nn.Linear(2, 2), "albert-base-v2"):
        with pytest.raises(LitebertError, match="LB-871"):
            litebert.optimize(other)
