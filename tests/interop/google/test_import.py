"""Checkpoints of real TensorFlow become model folders, number for number."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from transformers import AlbertForPreTraining

from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model, read_config
from litebert.interop.google import import_checkpoint
from litebert.interop.google.bundle import read_bundle
from litebert.interop.google.bundle_writer import Variable, write_bundle
from litebert.nn import Batch
from litebert.optim import AdamW, load_state_tensors, parameter_groups, state_tensors

Numbers = Callable[[str], Mapping[str, NDArray[np.float32]]]
BLOCK = "albert.encoder.albert_layer_groups.{}.albert_layers.{}."
THEIR_BLOCK = "bert/encoder/transformer/group_{}/inner_group_{}/"
# transformers' names (spec of the folder) beside Google's: written out, not taken from our table.
ENCODER = {
    "albert.embeddings.word_embeddings.weight": "bert/embeddings/word_embeddings",
    "albert.embeddings.position_embeddings.weight": "bert/embeddings/position_embeddings",
    "albert.embeddings.token_type_embeddings.weight": "bert/embeddings/token_type_embeddings",
    "albert.embeddings.LayerNorm.weight": "bert/embeddings/LayerNorm/gamma",
    "albert.embeddings.LayerNorm.bias": "bert/embeddings/LayerNorm/beta",
    "albert.pooler.weight": "bert/pooler/dense/kernel",
    "albert.pooler.bias": "bert/pooler/dense/bias",
}
PROJECTION = {
    "albert.encoder.embedding_hidden_mapping_in.weight": ("bert/encoder/embedding_hidden_mapping_in/kernel"),
    "albert.encoder.embedding_hidden_mapping_in.bias": ("bert/encoder/embedding_hidden_mapping_in/bias"),
}
LAYER = {
    "attention.query.weight": "attention_1/self/query/kernel",
    "attention.query.bias": "attention_1/self/query/bias",
    "attention.key.weight": "attention_1/self/key/kernel",
    "attention.key.bias": "attention_1/self/key/bias",
    "attention.value.weight": "attention_1/self/value/kernel",
    "attention.value.bias": "attention_1/self/value/bias",
    "attention.dense.weight": "attention_1/output/dense/kernel",
    "attention.dense.bias": "attention_1/output/dense/bias",
    "attention.LayerNorm.weight": "LayerNorm/gamma",
    "attention.LayerNorm.bias": "LayerNorm/beta",
    "ffn.weight": "ffn_1/intermediate/dense/kernel",
    "ffn.bias": "ffn_1/intermediate/dense/bias",
    "ffn_output.weight": "ffn_1/intermediate/output/dense/kernel",
    "ffn_output.bias": "ffn_1/intermediate/output/dense/bias",
    "full_layer_layer_norm.weight": "LayerNorm_1/gamma",
    "full_layer_layer_norm.bias": "LayerNorm_1/beta",
}
MASKED_LM = {
    "predictions.bias": "cls/predictions/output_bias",
    "predictions.dense.weight": "cls/predictions/transform/dense/kernel",
    "predictions.dense.bias": "cls/predictions/transform/dense/bias",
    "predictions.LayerNorm.weight": "cls/predictions/transform/LayerNorm/gamma",
    "predictions.LayerNorm.bias": "cls/predictions/transform/LayerNorm/beta",
}
ORDER = {
    "sop_classifier.classifier.weight": "cls/seq_relationship/output_weights",
    "sop_classifier.classifier.bias": "cls/seq_relationship/output_bias",
}
CLASSIFIER = {"classifier.weight": "output_weights", "classifier.bias": "output_bias"}
SPANS = {"qa_outputs.weight": "cls/squad/output_weights", "qa_outputs.bias": "cls/squad/output_bias"}
CONDITIONAL = {
    "start_logits.dense.weight": "start_logits/dense/kernel",
    "start_logits.dense.bias": "start_logits/dense/bias",
    "end_logits.dense_0.weight": "end_logits/dense_0/kernel",
    "end_logits.dense_0.bias": "end_logits/dense_0/bias",
    "end_logits.LayerNorm.weight": "end_logits/LayerNorm/gamma",
    "end_logits.LayerNorm.bias": "end_logits/LayerNorm/beta",
    "end_logits.dense_1.weight": "end_logits/dense_1/kernel",
    "end_logits.dense_1.bias": "end_logits/dense_1/bias",
    "answer_class.dense_0.weight": "answer_class/dense_0/kernel",
    "answer_class.dense_0.bias": "answer_class/dense_0/bias",
    "answer_class.dense_1.weight": "answer_class/dense_1/kernel",
}


def _layers(groups: int = 1, inner: int = 1) -> dict[str, str]:
    return {
        BLOCK.format(group, each) + ours: THEIR_BLOCK.format(group, each) + theirs
        for group in range(groups)
        for each in range(inner)
        for ours, theirs in LAYER.items()
    }


BASE = ENCODER | PROJECTION | _layers()
CASES = {
    "pretraining": BASE | MASKED_LM | ORDER,
    "groups_bfloat16": ENCODER | PROJECTION | _layers(2, 2) | MASKED_LM | ORDER,
    "labels": BASE | CLASSIFIER,
    "spans": BASE | SPANS,
    "conditional_spans": BASE | CONDITIONAL,
    "hub": BASE | MASKED_LM,
}


@pytest.mark.parametrize("name", CASES)
def test_every_number_arrives_under_its_name(written: Path, numbers: Numbers, tmp_path: Path, name: str) -> None:
    report = import_checkpoint(written / name, tmp_path / "model")
    found = load_file(tmp_path / "model" / "model.safetensors")
    theirs = {key.removeprefix("module/"): value for key, value in numbers(name).items()}
    assert set(found) == set(CASES[name])
    for ours, variable in CASES[name].items():
        stored = theirs[variable]
        expected = stored.T if variable.endswith("/kernel") else stored
        assert np.array_equal(found[ours], expected), variable
    assert report.num_variables == len(CASES[name])
    assert report.unused == ()
    assert load_model(tmp_path / "model").unused == (
        ("albert.pooler.bias", "albert.pooler.weight") if "spans" in name else ()
    )


def test_the_configuration_is_googles_in_our_words(written: Path, tmp_path: Path) -> None:
    import_checkpoint(written / "groups_bfloat16", tmp_path / "model")
    assert read_config(tmp_path / "model") == AlbertConfig(
        vocab_size=40,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=4,
        num_hidden_groups=2,
        inner_group_num=2,
        num_attention_heads=4,
        intermediate_size=24,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=12,
    )


def test_equal_sizes_have_no_projection_and_transformers_agrees(written: Path, tmp_path: Path) -> None:
    import_checkpoint(written / "equal_sizes", tmp_path / "model")
    ours = load_model(tmp_path / "model").network
    theirs, report = AlbertForPreTraining.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(report.values())
    assert not ours.config.projects_embeddings
    assert ours.config.hidden_act == "relu"
    ids = torch.tensor([[2, 7, 9, 3]])
    batch = Batch.from_padded(ids)
    with torch.no_grad():
        mine, other = ours(batch, torch.arange(4)), theirs.eval()(ids)
    assert torch.allclose(mine.masked_lm, other.prediction_logits[0], atol=1e-5)
    assert torch.allclose(mine.sentence_order, other.sop_logits, atol=1e-5)


def test_a_module_without_sentence_order_lacks_it_by_name(written: Path, tmp_path: Path) -> None:
    report = import_checkpoint(written / "hub", tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.missing == {"sentence_order.classifier.weight", "sentence_order.classifier.bias"}
    assert loaded.missing == set(report.missing)
    assert report.heads == ("masked LM",)
    assert any("sentence_order" in note for note in report.notes)


def test_albert_zh_computes_what_its_network_computed(written: Path, numbers: Numbers, tmp_path: Path) -> None:
    report = import_checkpoint(written / "albert_zh", tmp_path / "model")
    network = load_model(tmp_path / "model").network
    old = {name: torch.from_numpy(value) for name, value in numbers("albert_zh").items()}
    words, second = (old[f"bert/embeddings/word_embeddings{each}"] for each in ("", "_2"))
    ids, segments = torch.tensor([2, 11, 30, 3]), torch.tensor([0, 0, 1, 1])
    batch = Batch.from_flat(ids, segments, [4])
    summed = words[ids] @ second + old["bert/embeddings/position_embeddings"][:4]
    embedded = _normed(
        summed + old["bert/embeddings/token_type_embeddings"][segments], old, "bert/embeddings/LayerNorm"
    )
    with torch.no_grad():
        assert torch.allclose(network.albert.embedding(batch), embedded, atol=1e-4)
        hidden = network.albert(batch)
        dense = hidden @ old["cls/predictions/transform/dense/kernel"]
        active = torch.nn.functional.gelu(dense + old["cls/predictions/transform/dense/bias"], approximate="tanh")
        transformed = _normed(active, old, "cls/predictions/transform/LayerNorm")
        logits = transformed @ second.T @ words.T + old["cls/predictions/output_bias"]
        found = network(batch, torch.arange(4)).masked_lm
    assert torch.allclose(found, logits, rtol=1e-4, atol=1e-3)
    layer = "bert/encoder/layer_shared/"
    assert torch.equal(network.albert.feed_forward[0].norm.weight, old[f"{layer}output/LayerNorm/gamma"])
    assert torch.equal(network.albert.attention[0].output.weight, old[f"{layer}attention/output/dense/kernel"].T)
    assert any("E = H" in note for note in report.notes)


def _normed(values: torch.Tensor, old: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    gamma, beta = old[f"{name}/gamma"], old[f"{name}/beta"]
    return torch.nn.functional.layer_norm(values, values.shape[-1:], gamma, beta, 1e-12)


def test_a_sliced_variable_is_refused_by_name(written: Path) -> None:
    bundle = read_bundle(written / "sliced" / "model.ckpt")
    with pytest.raises(LitebertError, match=r"LB-706.*word_embeddings"):
        bundle.read("bert/embeddings/word_embeddings")
    assert bundle.read("whole").tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "bfloat16", "int32", "int64"])
def test_every_kind_of_number_is_read(written: Path, kind: str) -> None:
    bundle = read_bundle(written / "kinds" / "model.ckpt-best")
    assert bundle.entries[kind].dtype == kind
    assert bundle.read(kind).tolist() == [[-3, -2, -1], [0, 1, 2]]


def test_the_optimizer_is_kept_when_asked_for(written: Path, numbers: Numbers, tmp_path: Path) -> None:
    report = import_checkpoint(written / "pretraining", tmp_path / "model", has_optimizer=True)
    network = load_model(tmp_path / "model").network
    optimizer = AdamW(parameter_groups(network.named_parameters(), weight_decay=0.01))
    kept = {
        name: torch.from_numpy(tensor)
        for name, tensor in load_file(tmp_path / "model" / "optimizer.safetensors").items()
    }
    load_state_tensors(optimizer, network.named_parameters(), kept)
    state = state_tensors(optimizer, network.named_parameters())
    theirs = numbers("pretraining")
    block = THEIR_BLOCK.format(0, 0)
    for slot in ("adam_m", "adam_v"):
        assert np.array_equal(
            state[f"albert.feed_forward.0.intermediate.weight/{slot}"],
            theirs[f"{block}ffn_1/intermediate/dense/kernel/{slot}"].T,
        )
        assert np.array_equal(state[f"masked_lm.bias/{slot}"], theirs[f"cls/predictions/output_bias/{slot}"])
    assert report.optimizer_step == 7
    assert json.loads((tmp_path / "model" / "state.json").read_text()) == {"step": 7}


def test_moments_that_never_were_are_zeros_and_strangers_are_named(
    written: Path, numbers: Numbers, tmp_path: Path
) -> None:
    theirs = dict(numbers("pretraining"))
    for name in ("bert/pooler/dense/kernel/adam_m", "bert/pooler/dense/kernel/adam_v"):
        del theirs[name]
    del theirs["global_step"]
    theirs["bert/stranger"] = np.zeros(3, np.float32)
    write_bundle(tmp_path / "x.ckpt", [Variable(*each) for each in theirs.items()])
    report = import_checkpoint(
        tmp_path / "x.ckpt",
        tmp_path / "model",
        config=written / "pretraining" / "albert_config.json",
        has_optimizer=True,
    )
    kept = load_file(tmp_path / "model" / "optimizer.safetensors")
    assert not kept["albert.pooler.weight/adam_v"].any()
    assert kept["albert.pooler.weight/adam_v"].shape == (16, 16)
    assert kept["albert.pooler.bias/adam_v"].any()
    assert report.optimizer_step == 0
    assert report.unused == ("bert/stranger",)
    assert any("bert/stranger" in note for note in report.notes)


def test_moments_of_another_shape_are_refused(written: Path, numbers: Numbers, tmp_path: Path) -> None:
    theirs = numbers("pretraining") | {"output/adam_m": np.zeros(1, np.float32)}
    theirs["bert/pooler/dense/bias/adam_m"] = np.zeros(3, np.float32)
    write_bundle(tmp_path / "x.ckpt", [Variable(*each) for each in theirs.items()])
    with pytest.raises(DamagedError, match=r"LB-721[\s\S]*pooler/dense/bias"):
        import_checkpoint(
            tmp_path / "x.ckpt",
            tmp_path / "model",
            config=written / "pretraining" / "albert_config.json",
            has_optimizer=True,
        )
    assert not (tmp_path / "model").exists()
