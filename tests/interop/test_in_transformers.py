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
from litebert.interop.in_transformers import EngineForward

SHAPE = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
ALBERT = SHAPE | {"embedding_size": 16}
HEADS = ("Model", "ForPreTraining", "ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering")
MODELS = [(family, head, {}) for family in ("Albert", "Bert") for head in HEADS]
MODELS.append(("Albert", "Model", {"num_hidden_groups": 3, "inner_group_num": 2, "embedding_size": 32}))


def _albert(head: str, **changes: object) -> hf.PreTrainedModel:
    return _random(getattr(hf, f"Albert{head}")(hf.AlbertConfig(**(ALBERT | changes))))


def _bert(head: str, **changes: object) -> hf.PreTrainedModel:
    return _random(getattr(hf, f"Bert{head}")(hf.BertConfig(**(SHAPE | changes))))


def _random(model: hf.PreTrainedModel) -> hf.PreTrainedModel:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def _inputs() -> dict[str, Tensor]:
    ids = torch.randint(5, 90, (4, 12), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([12, 5, 9, 1])
    mask = (torch.arange(12) < lengths[:, None]).long()
    segments = ((torch.arange(12) >= 4) & (torch.arange(12) < lengths[:, None])).long()
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def _uses_engine(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Return a function that says whether the engine has computed since it was last asked."""
    calls: list[int] = []
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), EngineForward):
            original = module.forward._output
            monkeypatch.setattr(module.forward, "_output", lambda x, f=original: calls.append(1) or f(x))

    def used() -> bool:
        found = bool(calls)
        calls.clear()
        return found

    return used


def _assert_same(found: object, expected: object, mask: Tensor) -> None:
    """Compare all outputs by name; of what has a row a token, the real tokens."""
    assert type(found) is type(expected)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        got = found[name]
        if value.shape[:2] == mask.shape:
            got, value = got[mask.bool()], value[mask.bool()]
        torch.testing.assert_close(got, value, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize(("family", "head", "changes"), MODELS)
def test_every_head_gives_what_it_gave(
    family: str, head: str, changes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = (_albert if family == "Albert" else _bert)(head, **changes), _inputs()
    with torch.inference_mode():
        expected = model(**inputs)
        used = _uses_engine(litebert.optimize(model), monkeypatch)
        found = model(**inputs)
    assert used()
    _assert_same(found, expected, inputs["attention_mask"])


@torch.no_grad()
def test_without_a_mask_or_pooler_and_as_a_tuple() -> None:
    model, ids = (_random(hf.BertModel(hf.BertConfig(**SHAPE), add_pooling_layer=False)), (_inputs()["input_ids"]))
    expected = model(ids, return_dict=False)
    found = litebert.optimize(model)(ids, return_dict=False)
    assert isinstance(found, tuple)
    assert len(found) == len(expected)
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options", [{"output_attentions": True}, {"output_hidden_states": True}], ids=lambda options: next(iter(options))
)
@torch.no_grad()
def test_inner_outputs_are_the_originals_and_the_engine_computes_again(
    options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = _bert("ForSequenceClassification"), _inputs()
    expected = model(**inputs, **options)
    used = _uses_engine(litebert.optimize(model), monkeypatch)
    found = model(**inputs, **options)
    assert not used()
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found.logits, expected.logits, atol=0, rtol=0)
    model(**inputs)
    assert used()


def test_training_and_gradients_are_the_originals(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = _albert("ForSequenceClassification"), _inputs()
    twin = copy.deepcopy(model)
    used = _uses_engine(litebert.optimize(model), monkeypatch)
    for one in (model.train(), twin.train()):
        torch.manual_seed(1)
        one(**inputs, labels=torch.tensor([0, 1, 0, 1])).loss.backward()
    assert not used()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert (ours.grad is None and theirs.grad is None) or torch.equal(ours.grad, theirs.grad)


@torch.no_grad()
def test_new_weights_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = litebert.optimize(_albert("Model")), _inputs()
    before = model(**inputs)[1]
    for parameter in model.parameters():
        parameter.mul_(1.1)
    used = _uses_engine(model, monkeypatch)
    after = model(**inputs)[1]
    assert used()
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(after, model.forward.original(**inputs)[1], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_copy_computes_with_its_own_weights() -> None:
    model, inputs = litebert.optimize(_bert("Model")), _inputs()
    before = model(**inputs)[1]
    twin = copy.deepcopy(model)
    for parameter in twin.parameters():
        parameter.zero_()
    torch.testing.assert_close(model(**inputs)[1], before, atol=0, rtol=0)
    assert not twin(**inputs)[1].any()


@pytest.mark.parametrize("change", ["left padding", "embeddings", "half", "hook"])
@torch.no_grad()
def test_what_the_engine_does_not_compute_is_the_originals(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = litebert.optimize(_albert("Model")), _inputs()
    used = _uses_engine(model, monkeypatch)
    if change == "left padding":
        inputs = {name: values.flip(1) for name, values in inputs.items()}
    elif change == "embeddings":
        inputs = {"inputs_embeds": model.embeddings.word_embeddings(inputs["input_ids"])}
    elif change == "half":
        model.bfloat16()
    else:
        model.encoder.register_forward_hook(lambda *_: None)
    model(**inputs)
    assert not used()


@torch.no_grad()
def test_a_pipeline_and_its_tokenizer_run_on_the_engine(packaged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["The cat sat on the [MASK].", "Paris is the [MASK] of a much larger country."]
    pipe = hf.pipeline("fill-mask", model=packaged, batch_size=2, device="cpu")
    expected = pipe(texts)
    used = _uses_engine(litebert.optimize(pipe).model, monkeypatch)
    found = pipe(texts)
    assert used()
    for ours, theirs in zip(found, expected, strict=True):
        assert [each["token"] for each in ours] == [each["token"] for each in theirs]
        scores = [each["score"] for each in theirs]
        assert [each["score"] for each in ours] == pytest.approx(scores, abs=1e-5)


def test_sentence_transformers_run_on_the_engine(packaged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["one text", "another, which is somewhat longer than the first", "three"]
    model = SentenceTransformer(packaged, device="cpu")
    expected = model.encode(texts)
    used = _uses_engine(litebert.optimize(model), monkeypatch)
    found = model.encode(texts)
    assert used()
    assert abs(found - expected).max() < 1e-5


def test_the_signature_stays_twice_is_once_and_other_models_are_refused() -> None:
    model = _bert("Model")
    expected = inspect.signature(model.forward)
    litebert.optimize(litebert.optimize(model))
    assert inspect.signature(model.forward) == expected
    assert not isinstance(model.forward.original, EngineForward)
    for other in (nn.Linear(2, 2), "albert-base-v2"):
        with pytest.raises(LitebertError, match="LB-871"):
            litebert.optimize(other)


@pytest.fixture(scope="module")
def packaged() -> str:
    from litebert.hub import packaged_model

    return str(packaged_model())
