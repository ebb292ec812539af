"""Folders that we write and transformers reads, and the other way round: every head,
ALBERT and BERT.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import (
    ModelFolder,
    read_folder,
    read_head,
    start_from,
    write_folder,
)
from litebert.folder.card import model_card
from litebert.folder.config import read_layout
from litebert.folder.names import ALBERT, BERT
from litebert.inference.model import Model
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch, Network
from litebert.plugins import TASK_HEADS
from litebert.tasks.kinds.spans import ConditionalSpanHead
from tests.conftest import made_by_page
from tests.networks import SHAPE, drawn

CONFIG = AlbertConfig(**SHAPE | {"vocab_size": 90, "num_hidden_layers": 4})
OF_BERT = {
    name: size
    for name, size in dict(CONFIG).items()
    if name in SHAPE and name != "embedding_size"
}
GROUPS = [
    {"num_hidden_groups": groups, "inner_group_num": inner}
    for groups, inner in ((2, 1), (1, 2), (2, 2), (4, 1))
]
SHARED = [
    {"sharing": "attention"},
    {"sharing": "ffn", "inner_group_num": 2},
    {"sharing": "none"},
]
EQUAL = [{"embedding_size": 32}, {"embedding_size": 32, "embedding_projection": True}]
PLANS = [{}, *GROUPS, *SHARED, *EQUAL, {"hidden_act": "gelu"}, {"hidden_act": "relu"}]
CLASSIFIER = HeadConfig(kind="sequence-classification", labels=("no", "maybe", "yes"))


def _padded() -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and segments of texts of 12, 8, 3 and 1 tokens."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, 90, (4, 12), generator=generator)
    mask = (torch.arange(12) < torch.tensor([12, 8, 3, 1])[:, None]).long()
    return ids, mask, torch.randint(0, 2, (4, 12), generator=generator) * mask


@torch.no_grad()
def _assert_same(network: Network, model: nn.Module) -> None:
    """Compare the outputs of our network with those of a model of transformers, on real
    tokens.
    """
    ids, mask, segments = _padded()
    real = mask.bool()
    batch = Batch.from_padded(ids, mask, segments)
    name = type(model).__name__
    if name.endswith("MultipleChoice"):  # two questions with two choices
        ids, mask, segments = (x.view(2, 2, 12) for x in (ids, mask, segments))
    out = model.eval()(
        ids, attention_mask=mask, token_type_ids=segments, output_hidden_states=True
    )
    if isinstance(network, AlbertForTask):
        output = network(batch)
        if name.endswith("QuestionAnswering"):
            expected = torch.stack([out.start_logits, out.end_logits], -1)[real]
        else:
            expected = (
                out.logits[real] if "Token" in name else out.logits.reshape(4, -1)
            )
    else:
        states = zip(network.albert.states(batch), out.hidden_states, strict=True)
        assert all(
            torch.allclose(ours, theirs[real], atol=1e-5) for ours, theirs in states
        )
        hidden = network.albert(batch)
        output = network.masked_lm(hidden, network.albert.embedding.word.weight)
        expected = out[0][real]
        if name.endswith("PreTraining"):
            order = network.sentence_order(
                network.albert.pool(hidden[batch.first_tokens])
            )
            torch.testing.assert_close(order, out[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)


def _rewrite(folder: Path, **changes: object) -> None:
    """Change config.json; a value of None removes a name."""
    table = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in table.items() if value is not None})
    )


@pytest.mark.parametrize("changes", PLANS, ids=str)
def test_transformers_computes_what_we_do_and_we_read_the_same_bits(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    network = drawn(AlbertForPretraining(CONFIG.model_copy(update=changes)))
    write_folder(ModelFolder(network), tmp_path)
    theirs, report = hf.AlbertForPreTraining.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(report.values())
    _assert_same(network, theirs)
    loaded = read_folder(tmp_path)
    assert (
        loaded.missing == frozenset()
        and loaded.network.albert.plan == network.albert.plan
    )
    state = loaded.network.state_dict()
    assert all(
        torch.equal(tensor, state[name])
        for name, tensor in network.state_dict().items()
    )
    # each shared tensor once
    assert changes or len(load_file(tmp_path / "model.safetensors")) == 32


def test_labels_and_the_kind_of_problem_go_to_transformers_and_back(
    tmp_path: Path,
) -> None:
    several = CLASSIFIER.model_copy(
        update={"problem_type": "multi_label_classification"}
    )
    score = HeadConfig(
        kind="sequence-classification", labels=("score",), problem_type="regression"
    )
    for head in (CLASSIFIER, several, score):
        write_folder(ModelFolder(AlbertForTask(CONFIG, head)), tmp_path)
        theirs = hf.AlbertForSequenceClassification.from_pretrained(tmp_path)
        read_back = tuple(theirs.config.id2label.values()), theirs.config.problem_type
        assert read_back == (head.labels, head.problem_type)
        theirs.save_pretrained(tmp_path / "again")
        assert read_head(tmp_path / "again") == head


BERTS = (
    "PreTraining",
    "MaskedLM",
    "SequenceClassification",
    "TokenClassification",
    "QuestionAnswering",
)


@pytest.mark.parametrize("name", [*BERTS, "MultipleChoice"])
def test_every_bert_equals_that_of_transformers(tmp_path: Path, name: str) -> None:
    cls = getattr(hf, f"BertFor{name}")
    labels = {"num_labels": 3} if name.endswith("Classification") else {}
    theirs = drawn(cls(hf.BertConfig(**OF_BERT, **labels)))
    theirs.save_pretrained(tmp_path)
    loaded = read_folder(
        tmp_path, for_inference=name not in ("PreTraining", "MaskedLM")
    )
    _assert_same(loaded.network, theirs)
    assert any("next-sentence" in note for note in loaded.notes) == (
        name == "PreTraining"
    )
    if name == "MaskedLM":
        assert {name_of_tensor.split(".")[0] for name_of_tensor in loaded.missing} == {
            "albert",
            "sentence_order",
        }
        # an ALBERT without sharing that transformers opens
        write_folder(ModelFolder(loaded.network), tmp_path / "albert")
        reference = hf.AlbertForMaskedLM.from_pretrained(tmp_path / "albert")
        _assert_same(loaded.network, reference)
        assert read_folder(tmp_path / "albert").network.config.sharing == "none"


def test_names_of_tensorflow_and_dropouts_are_read(tmp_path: Path) -> None:
    drawn(
        hf.BertModel(hf.BertConfig(**OF_BERT, hidden_dropout_prob=0.3))
    ).save_pretrained(tmp_path)
    expected = read_folder(tmp_path).network.state_dict()
    tensors = load_file(tmp_path / "model.safetensors")
    for new, old in {
        "LayerNorm.weight": "LayerNorm.gamma",
        "LayerNorm.bias": "LayerNorm.beta",
    }.items():
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    network = read_folder(tmp_path).network
    assert (
        network.config.hidden_dropout_prob
        == network.config.classifier_dropout_prob
        == 0.3
    )
    named = network.state_dict().items()
    assert all(
        torch.equal(tensor, expected[name])
        for name, tensor in named
        if not tensor.is_meta
    )


OTHERS = [
    ({"position_embedding_type": "relative_key"}, "LB-600"),
    ({"is_decoder": True}, "LB-600"),
    ({"model_type": "roberta"}, "LB-600"),
    ({"num_hidden_layers": True}, "LB-601"),
    ({"num_hidden_layers": 5}, r"LB-660[\s\S]*no bert.encoder.layer.4."),
]


def test_other_networks_are_refused(tmp_path: Path) -> None:
    for changes, said in OTHERS:
        hf.BertModel(hf.BertConfig(**OF_BERT)).save_pretrained(tmp_path)
        _rewrite(tmp_path, **changes)
        with pytest.raises(LitebertError, match=said):
            read_folder(tmp_path)


def test_attention_that_a_version_no_longer_has_is_named(tmp_path: Path) -> None:
    write_folder(ModelFolder(AlbertForPretraining(CONFIG)), tmp_path)
    _rewrite(tmp_path, attention="local", attention_window=2)
    with pytest.raises(LitebertError, match=r"LB-107[\s\S]*local"):
        read_folder(tmp_path)


# --- the head that transformers does not have -----------------------------------------


@torch.no_grad()
def test_the_conditional_head_computes_the_official_formulas() -> None:
    head = drawn(
        ConditionalSpanHead(CONFIG, HeadConfig(kind="conditional-question-answering"))
    )
    hidden = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(4))
    allowed = torch.tensor([[True, False, True, True, False]])
    spans = head(hidden, allowed, torch.tensor([[2]]))
    masked = torch.where(allowed[0], head.start(hidden[0])[:, 0], torch.tensor(-1e30))
    probabilities = masked.softmax(-1)
    pairs = torch.cat([hidden[0], hidden[0, 2].expand(5, 32)], -1)
    ends = head.end(head.end_norm(torch.tanh(head.end_hidden(pairs))))[:, 0]
    ends = torch.where(allowed[0], ends, torch.tensor(-1e30)).log_softmax(-1)
    summed = torch.cat([probabilities @ hidden[0], hidden[0, 0]])
    answer = head.answer(torch.tanh(head.answer_hidden(summed)))[0]
    assert torch.allclose(
        spans.start[0, allowed[0]].exp(), probabilities[allowed[0]], atol=1e-6
    )
    assert torch.allclose(spans.end[0, 0, allowed[0]], ends[allowed[0]], atol=1e-5)
    assert torch.allclose(spans.no_answer[0], answer, atol=1e-5)


# --- what files leave out, and what does not fit --------------------------------------


def test_what_a_config_leaves_out_has_the_default_of_transformers(
    tmp_path: Path,
) -> None:
    config = hf.AlbertConfig(**OF_BERT, embedding_size=16)
    hf.AlbertForSequenceClassification(config).save_pretrained(tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    assert read_folder(tmp_path).network.head_config.labels == ("LABEL_0", "LABEL_1")
    hf.AlbertModel(config).save_pretrained(tmp_path)
    for architectures in (["AlbertModel"], None):
        _rewrite(tmp_path, architectures=architectures)
        assert {name.split(".")[0] for name in read_folder(tmp_path).missing} == {
            "masked_lm",
            "sentence_order",
        }
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(LitebertError, match="LB-602"):
        read_folder(tmp_path)


# ---- what a config.json of others says or leaves out ---------------------------------


def head_in(folder: Path, **table: object) -> HeadConfig:
    """Return the head that a config.json with these contents describes."""
    contents = {"architectures": ["AlbertForSequenceClassification"], **table}
    (folder / "config.json").write_text(json.dumps(contents))
    head = read_head(folder)
    assert head is not None
    return head


def test_more_than_ten_labels_are_ordered_by_their_numbers(tmp_path: Path) -> None:
    names = {str(number): f"label {number}" for number in (11, *range(11))}
    expected = tuple(f"label {number}" for number in range(12))
    assert head_in(tmp_path, id2label=names).labels == expected


def test_labels_without_numbers_have_the_names_of_transformers(tmp_path: Path) -> None:
    names = {"good": "0", "bad": "1"}
    assert head_in(tmp_path, id2label=names).labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize(
    ("names", "problem_type"),
    [({"0": "score"}, "regression"), ({}, "single_label_classification")],
)
def test_without_a_kind_of_problem_one_label_is_a_score(
    tmp_path: Path, names: dict[str, str], problem_type: str
) -> None:
    assert head_in(tmp_path, id2label=names).problem_type == problem_type
    head = head_in(tmp_path, id2label=names, problem_type=None)
    assert head.problem_type == problem_type


def test_the_class_tells_a_bert_where_its_type_is_missing(tmp_path: Path) -> None:
    """As in files of early versions of transformers."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": ["BertForMaskedLM"]}))
    assert read_layout(tmp_path).names is BERT
    path.write_text("{}")
    assert read_layout(tmp_path).names is ALBERT


QUERY = "albert.encoder.albert_layer_groups.2.albert_layers.0.attention.query.weight"
NEEDED = ("classifier.weight", "albert.pooler.bias", "albert.embeddings.LayerNorm.bias")
MISFITS: list[tuple[dict[str, Tensor | None], dict[str, object], str]] = [
    ({}, {"id2label": {"0": "a", "1": "a", "2": "b"}}, "LB-661"),
    ({}, {"problem_type": "ranking"}, "LB-661"),
    ({}, {"id2label": {"0": "a", "1": "b"}}, "LB-606"),
    ({QUERY: torch.ones(32, 32)}, {}, "LB-605"),
    ({"albert.extra": torch.ones(1)}, {}, r"LB-604[\s\S]*albert\.extra"),
    ({"albert.pooler.bias": torch.ones(7)}, {}, r"LB-606.*albert\.pooler\.bias"),
    (
        {"albert.pooler.bias": torch.ones(32, dtype=torch.int32)},
        {},
        r"LB-606.*albert\.pooler\.bias",
    ),
    *(({name: None}, {}, rf"LB-660[\s\S]*{name}") for name in NEEDED),
]


def test_tensors_and_settings_that_do_not_fit_are_named(tmp_path: Path) -> None:
    for tensors, settings, said in MISFITS:
        write_folder(
            ModelFolder(
                AlbertForTask(
                    CONFIG.model_copy(update={"sharing": "attention"}), CLASSIFIER
                )
            ),
            tmp_path,
        )
        changed = load_file(tmp_path / "model.safetensors") | tensors
        save_file(
            {name: t for name, t in changed.items() if t is not None},
            tmp_path / "model.safetensors",
        )
        _rewrite(tmp_path, **settings)
        with pytest.raises(DamagedError, match=said):
            read_folder(tmp_path)


def test_a_new_task_starts_from_an_encoder_and_keeps_only_the_same_head(
    tmp_path: Path,
) -> None:
    dense = ("head.dense.bias", "head.dense.weight")
    write_folder(
        ModelFolder(
            AlbertForPretraining(CONFIG, generator=torch.Generator().manual_seed(7))
        ),
        tmp_path,
    )
    mnli = AlbertForTask(CONFIG, CLASSIFIER)
    start = start_from(mnli, tmp_path)
    assert start.fresh == dense
    assert {name.split(".")[0] for name in start.dropped} == {
        "masked_lm",
        "sentence_order",
    }
    assert torch.equal(
        mnli.albert.pooler.weight, read_folder(tmp_path).network.albert.pooler.weight
    )
    write_folder(ModelFolder(mnli), tmp_path)
    other = HeadConfig(
        kind="sequence-classification", labels=("entailment", "not_entailment")
    )
    start = start_from(AlbertForTask(CONFIG, other), tmp_path)
    assert start.fresh == start.dropped == dense
    same = AlbertForTask(CONFIG, CLASSIFIER)
    assert start_from(same, tmp_path).fresh == () and torch.equal(
        same.head.dense.weight, mnli.head.dense.weight
    )


# --- a third-party head, and an encoder with real pretrained weights (PL-BERT) --------


@torch.inference_mode()
def test_a_third_party_head_is_saved_loaded_and_described(
    tmp_path: Path, small_model: Path, monkeypatch
) -> None:
    try:
        network = made_by_page("head", tmp_path, monkeypatch, "polarity")[
            "network"
        ].eval()
        write_folder(ModelFolder(network), tmp_path / "model")
        again = read_folder(tmp_path / "model").network
        assert (
            isinstance(again, AlbertForTask) and again.head_config.kind == "two-scores"
        )
        batch = Batch.from_lists([[2, 7, 3], [2, 8, 9, 3]])
        assert torch.equal(again(batch), network(batch)) and again(batch).shape == (
            2,
            2,
        )
        assert "gives two scores to each text" in model_card(tmp_path / "model")
    finally:
        TASK_HEADS.remove("two-scores")
    others = shutil.ignore_patterns("model.safetensors", "config.json")
    shutil.copytree(small_model, tmp_path / "model", dirs_exist_ok=True, ignore=others)
    said = r"LB-108[\s\S]*needs the plug-in polarity[\s\S]*--plugin polarity\.py"
    with pytest.raises(LitebertError, match=said):
        Model.load(tmp_path / "model").classify(["A text."])
    # a run knows the file that was given
    record = {"plugins": {"polarity": "heads/polarity.py"}}
    (tmp_path / "run.json").write_text(json.dumps(record), "utf-8")
    with pytest.raises(
        LitebertError, match=r"LB-108[\s\S]*--plugin heads/polarity\.py"
    ):
        Model.load(tmp_path / "model").classify(["A text."])


# States reach 11.6, where float32 numbers are 1e-6 apart. Against float64 both
# implementations are off by 1.2e-5 to 1.7e-5 after twelve layers, and by as much from
# each other: order of summation.
ROUNDING = 4e-5


@torch.no_grad()
def test_states_of_pl_bert_equal_those_recorded_from_transformers(
    real_data: Path, tmp_path: Path
) -> None:
    source = real_data / "plbert"
    # one scale per row or per table
    stored = load_file(source / "model.int8.safetensors")
    scales = {
        name.removesuffix("_scale"): t.reshape(-1, 1)
        for name, t in stored.items()
        if name.endswith("_scale")
    }
    kept = {
        name: tensor for name, tensor in stored.items() if not name.endswith("_scale")
    }
    tensors = {
        name: tensor.float() * scales[name] if name in scales else tensor
        for name, tensor in kept.items()
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(source / "config.json", tmp_path / "config.json")

    loaded = read_folder(tmp_path)  # without pooler and heads
    assert {name.split(".")[0] for name in loaded.missing} == {
        "albert",
        "masked_lm",
        "sentence_order",
    }
    assert loaded.unused == ()
    assert (
        sum(p.numel() for p in loaded.network.parameters() if not p.is_meta)
        == 5_701_888
    )

    # a sentence, as transformers computed it elsewhere
    with np.load(source / "reference_io.npz") as arrays:
        reference = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    ids = reference["input_ids"]
    states = list(
        loaded.network.albert.states(
            Batch.from_padded(ids, torch.ones_like(ids), torch.zeros_like(ids))
        )
    )
    for step in (0, 1, 6, 12):
        difference = states[step] - reference[f"hf_fp32_hidden_{step}"][0]
        assert float(difference.abs().max()) < ROUNDING, step
