"""Every head class of transformers, both ways, and the one that transformers does not have."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AlbertConfig as TheirConfig
from transformers import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)

from litebert.config import AlbertConfig, HeadConfig, preset
from litebert.errors import DamagedError
from litebert.folder import load_model, save_model, start_from
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch
from litebert.tasks.kinds.spans import ConditionalSpanHead, score_spans

SHAPE = AlbertConfig(
    vocab_size=90, embedding_size=16, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48
)
THEIRS = {
    "vocab_size": 90,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
NAMES = ("no", "maybe", "yes")
HEADS = {
    "sequence": HeadConfig(kind="sequence-classification", labels=NAMES),
    "score": HeadConfig(kind="sequence-classification", labels=("score",), problem_type="regression"),
    "several": HeadConfig(kind="sequence-classification", labels=NAMES, problem_type="multi_label_classification"),
    "token": HeadConfig(kind="token-classification", labels=("O", "B-PER", "I-PER")),
    "span": HeadConfig(kind="question-answering"),
    "choice": HeadConfig(kind="multiple-choice"),
}
CLASSES = {
    "sequence": AlbertForSequenceClassification,
    "score": AlbertForSequenceClassification,
    "several": AlbertForSequenceClassification,
    "token": AlbertForTokenClassification,
    "span": AlbertForQuestionAnswering,
    "choice": AlbertForMultipleChoice,
}
PLANS = [{}, {"num_hidden_groups": 2, "inner_group_num": 2}, {"sharing": "attention"}, {"embedding_size": 32}]


def _network(head: HeadConfig, changes: dict[str, object] | None = None) -> AlbertForTask:
    network = AlbertForTask(SHAPE.model_copy(update=changes or {}), head).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return network


def _padded(vocab_size: int = 90) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, vocab_size, (4, 12), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 8:] = mask[2, 3:] = 0
    return ids, mask, torch.randint(0, 2, (4, 12), generator=generator)


@torch.no_grad()
def _ours(network: AlbertForTask, vocab_size: int = 90) -> Tensor:
    batch = Batch.from_padded(*_padded(vocab_size))
    logits = network(batch)
    return logits if network.head_config.is_pooled else batch.to_padded(logits, width=12)


@torch.no_grad()
def _theirs(network: torch.nn.Module, kind: str, vocab_size: int = 90) -> Tensor:
    ids, mask, segments = _padded(vocab_size)
    if kind == "choice":
        ids, mask, segments = (x.view(2, 2, 12) for x in (ids, mask, segments))
    out = network.eval()(ids, attention_mask=mask, token_type_ids=segments)
    if kind == "span":
        return torch.stack([out.start_logits, out.end_logits], -1) * mask[..., None]
    if kind == "token":
        return out.logits * mask[..., None]
    return out.logits.reshape(4, 1) if kind == "choice" else out.logits


@pytest.mark.parametrize("changes", PLANS, ids=str)
@pytest.mark.parametrize("kind", HEADS)
def test_transformers_reads_every_head_and_computes_the_same(
    tmp_path: Path, kind: str, changes: dict[str, object]
) -> None:
    network = _network(HEADS[kind], changes)
    save_model(network, tmp_path)
    theirs, report = CLASSES[kind].from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert (_ours(network) - _theirs(theirs, kind)).abs().max() < 1e-5
    if HEADS[kind].labels:
        assert tuple(theirs.config.id2label.values()) == HEADS[kind].labels


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_that_transformers_writes_is_read(tmp_path: Path, kind: str) -> None:
    head = HEADS[kind]
    labels = {"id2label": dict(enumerate(head.labels))} if head.labels else {}
    problem = {"problem_type": head.problem_type} if kind in ("score", "several") else {}
    torch.manual_seed(3)
    theirs = CLASSES[kind](TheirConfig(**THEIRS, **labels, **problem))
    theirs.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded.network, AlbertForTask)
    assert loaded.network.head_config == head
    assert not loaded.missing
    assert not loaded.unused
    assert (_ours(loaded.network) - _theirs(theirs, kind)).abs().max() < 1e-5


def test_the_conditional_head_comes_back_and_transformers_reads_its_encoder(tmp_path: Path) -> None:
    network = _network(HeadConfig(kind="conditional-question-answering"))
    save_model(network, tmp_path)
    again = load_model(tmp_path).network
    assert isinstance(again, AlbertForTask)
    ids, mask, segments = _padded()
    batch = Batch.from_padded(ids, mask, segments)
    with torch.no_grad():
        for ours, other in zip(
            score_spans(network, batch, mask.bool(), 3), score_spans(again, batch, mask.bool(), 3), strict=True
        ):
            assert torch.equal(ours, other)
    encoder = AlbertModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    with torch.no_grad():
        theirs = encoder(ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
        mine = batch.to_padded(network.albert(batch))
    assert (mine - theirs * mask[..., None]).abs().max() < 1e-5


def test_the_conditional_head_computes_the_official_formulas() -> None:
    head = ConditionalSpanHead(SHAPE, HeadConfig(kind="conditional-question-answering")).eval()
    generator = torch.Generator().manual_seed(4)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    hidden = torch.randn(1, 5, 32, generator=generator)
    allowed = torch.tensor([[True, False, True, True, False]])
    with torch.no_grad():
        spans = head(hidden, allowed, torch.tensor([[2]]))
        masked = torch.where(allowed[0], head.start(hidden[0])[:, 0], torch.tensor(-1e30))
        probabilities = masked.softmax(-1)
        pairs = torch.cat([hidden[0], hidden[0, 2].expand(5, 32)], -1)
        ends = head.end(head.end_norm(torch.tanh(head.end_hidden(pairs))))[:, 0]
        ends = torch.where(allowed[0], ends, torch.tensor(-1e30)).log_softmax(-1)
        summed = torch.cat([probabilities @ hidden[0], hidden[0, 0]])
        answer = head.answer(torch.tanh(head.answer_hidden(summed)))[0]
    assert torch.allclose(spans.start[0, allowed[0]].exp(), probabilities[allowed[0]], atol=1e-6)
    assert torch.allclose(spans.end[0, 0, allowed[0]], ends[allowed[0]], atol=1e-5)
    assert torch.allclose(spans.no_answer[0], answer, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        *("tiny", "mini", "small", "base-v1", "base-v2", "large-v2", "bert-base"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("xlarge-v2", "xxlarge-v2")),
    ],
)
def test_hidden_states_of_preset_shapes_equal_those_of_transformers(tmp_path: Path, name: str) -> None:
    config = preset(name).model_copy(update={"vocab_size": 200})
    network = AlbertForPretraining(config, generator=torch.Generator().manual_seed(1)).eval()
    save_model(network, tmp_path)
    theirs = AlbertModel.from_pretrained(tmp_path).eval()
    ids, mask, segments = _padded(200)
    batch = Batch.from_padded(ids, mask, segments)
    with torch.no_grad():
        states = [batch.to_padded(state) for state in network.albert.states(batch)]
        out = theirs(ids, attention_mask=mask, token_type_ids=segments, output_hidden_states=True)
    assert len(states) == len(out.hidden_states)
    for ours, other in zip(states, out.hidden_states, strict=True):
        assert (ours - other * mask[..., None]).abs().max() < 1e-5
    pooled = network.albert.pool(network.albert(batch, batch.first_tokens))
    assert (pooled - out.pooler_output).abs().max() < 1e-5


def test_a_config_without_architectures_leaves_the_head_to_the_tensors(tmp_path: Path) -> None:
    for kind, expected in (("span", "question-answering"), ("token", "token-classification")):
        save_model(_network(HEADS[kind]), tmp_path)
        table = json.loads((tmp_path / "config.json").read_text())
        del table["architectures"]
        (tmp_path / "config.json").write_text(json.dumps(table))
        network = load_model(tmp_path).network
        assert isinstance(network, AlbertForTask)
        assert network.head_config.kind == expected
    save_model(_network(HEADS["choice"]), tmp_path)
    table = json.loads((tmp_path / "config.json").read_text())
    del table["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(table))
    with pytest.raises(DamagedError, match="LB-662"):
        load_model(tmp_path)


def test_labels_without_names_are_numbered_as_transformers_does(tmp_path: Path) -> None:
    AlbertForSequenceClassification(TheirConfig(**THEIRS)).save_pretrained(tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    network = load_model(tmp_path).network
    assert isinstance(network, AlbertForTask)
    assert network.head_config.labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "LB-661"),
        ({"problem_type": "ranking"}, "LB-661"),
        ({"id2label": {"0": "a", "1": "b"}}, "LB-606"),
    ],
)
def test_a_head_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, object], code: str) -> None:
    save_model(_network(HEADS["sequence"]), tmp_path)
    table = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(table | changes))
    with pytest.raises(DamagedError, match=code):
        load_model(tmp_path)


def test_a_missing_head_or_encoder_tensor_is_an_error(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_model(_network(HEADS["sequence"]), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for name in ("classifier.weight", "albert.pooler.bias", "albert.embeddings.LayerNorm.bias"):
        rest = {key: tensor for key, tensor in tensors.items() if key != name}
        save_file(rest, tmp_path / "model.safetensors")
        with pytest.raises(DamagedError, match=rf"LB-660[\s\S]*{name}"):
            load_model(tmp_path)


def test_a_new_task_starts_from_an_encoder_and_says_what_is_fresh(tmp_path: Path) -> None:
    pretrained = AlbertForPretraining(SHAPE, generator=torch.Generator().manual_seed(7))
    save_model(pretrained, tmp_path)
    network = _network(HEADS["sequence"])
    start = start_from(network, tmp_path)
    assert start.fresh == ("head.dense.bias", "head.dense.weight")
    assert {name.split(".")[0] for name in start.dropped} == {"masked_lm", "sentence_order"}
    assert torch.equal(network.albert.pooler.weight, pretrained.albert.pooler.weight)


def test_a_head_with_other_labels_is_dropped_and_one_with_the_same_is_kept(tmp_path: Path) -> None:
    mnli = _network(HEADS["sequence"])
    save_model(mnli, tmp_path)
    other = HeadConfig(kind="sequence-classification", labels=("entailment", "not_entailment"))
    start = start_from(_network(other), tmp_path)
    assert start.fresh == start.dropped == ("head.dense.bias", "head.dense.weight")
    same = AlbertForTask(SHAPE, HEADS["sequence"])
    assert start_from(same, tmp_path).fresh == ()
    assert torch.equal(same.head.dense.weight, mnli.head.dense.weight)
