"""Checkpoints of real TensorFlow become model folders, number for number."""

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from safetensors.numpy import load_file
from transformers import AlbertForPreTraining

from litebert.cli import cli
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model
from litebert.interop.google import import_checkpoint
from litebert.interop.google.bundle import read_bundle, write_bundle
from litebert.interop.google.convert import read_official_config
from litebert.nn import AlbertForTask, Batch
from litebert.optim import AdamW, load_state_tensors, parameter_groups, state_tensors
from litebert.tokenizer import Tokenizer

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


def test_a_sliced_variable_is_refused_by_name(written: Path) -> None:
    bundle = read_bundle(written / "sliced" / "model.ckpt")
    with pytest.raises(LitebertError, match=r"LB-706.*word_embeddings"):
        bundle.read("bert/embeddings/word_embeddings")
    assert bundle.read("whole").tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "bfloat16", "int32", "int64"])
def test_every_kind_of_number_is_read(written: Path, kind: str) -> None:
    bundle = read_bundle(written / "kinds" / "model.ckpt-best")
    assert bundle.dtype(kind) == getattr(torch, kind)
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
    write_bundle(tmp_path / "x.ckpt", {name: torch.from_numpy(each) for name, each in theirs.items()})
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


# --- what the user must say, and where a checkpoint may lie ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("one_output", {"head": "sequence-classification"}, ("sequence-classification", ("LABEL_0",), "regression")),
        ("one_output", {"labels": ["similarity"]}, ("sequence-classification", ("similarity",), "regression")),
        ("one_output", {"head": "multiple-choice"}, ("multiple-choice", (), None)),
        ("labels", {}, ("sequence-classification", ("LABEL_0", "LABEL_1", "LABEL_2"), None)),
        ("labels", {"labels": ["no", "maybe", "yes"]}, ("sequence-classification", ("no", "maybe", "yes"), None)),
        ("labels", {"head": "token-classification"}, ("token-classification", ("LABEL_0", "LABEL_1", "LABEL_2"), None)),
    ],
)
def test_a_classifier_becomes_what_the_user_says(
    written: Path, tmp_path: Path, name: str, settings: dict[str, object], expected: tuple[object, ...]
) -> None:
    import_checkpoint(written / name, tmp_path / "model", **settings)
    network = load_model(tmp_path / "model").network
    assert isinstance(network, AlbertForTask)
    head = network.head_config
    assert (head.kind, head.labels) == expected[:2]
    assert expected[2] in (None, head.problem_type)
    assert (network.albert.pooler is None) == (head.kind == "token-classification")


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("one_output", {}, r"LB-713[\s\S]*--head multiple-choice"),
        ("labels", {"labels": ["a", "b"]}, "LB-714"),
        ("labels", {"labels": ["a", "a", "b"]}, "LB-714"),
        ("labels", {"head": "multiple-choice"}, "LB-714"),
        ("one_output", {"head": "multiple-choice", "labels": ["a"]}, "LB-714"),
        ("pretraining", {"head": "sequence-classification"}, "LB-712"),
        ("pretraining", {"labels": ["a"]}, "LB-712"),
        ("spans", {"head": "multiple-choice"}, "LB-712"),
        ("labels", {"has_optimizer": True}, "LB-724"),
        ("pretraining", {"attention_heads": 3}, "LB-708"),
        ("pretraining", {"tokenizer": Path("nowhere.model")}, "LB-004"),
        ("sliced", {}, "LB-719"),
        ("objects", {}, "LB-719"),
        ("first_format/model.ckpt", {}, "LB-718"),
        ("nowhere", {}, "LB-718"),
        ("pretraining/albert_config.json", {}, "LB-718"),
        ("pretraining/model.ckpt-worst", {}, "LB-718"),
    ],
)
def test_what_cannot_be_imported_says_why_and_leaves_nothing(
    written: Path, tmp_path: Path, name: str, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(LitebertError, match=said):
        import_checkpoint(written / name, tmp_path / "model", **settings)
    assert list(tmp_path.iterdir()) == []


def test_archive_folder_prefix_and_index_mean_the_same(written: Path, vocabulary: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(written / "labels", tmp_path / "albert_base")
    shutil.copy(vocabulary, folder)
    for name, mode, inside in (("albert_base.tar.gz", "w:gz", "albert_base"), ("albert_base.tar", "w", "./")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.add(folder, inside)
    places = {
        "gzip": tmp_path / "albert_base.tar.gz",
        "plain": tmp_path / "albert_base.tar",
        "folder": folder,
        "parent": tmp_path,
        "prefix": folder / "model.ckpt-best",
        "index": folder / "model.ckpt-best.index",
        "data": folder / "model.ckpt-best.data-00000-of-00001",
    }
    weights = set()
    for name, path in places.items():
        report = import_checkpoint(path, tmp_path / "out" / name)
        weights.add((tmp_path / "out" / name / "model.safetensors").read_bytes())
        assert (report.tokenizer, report.notes) == ("30k-clean.model", ())
        assert Tokenizer.load(tmp_path / "out" / name).vocab_size == 40
    assert len(weights) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(places)  # no unpacked archive is left


def test_the_state_file_says_which_of_several_checkpoints(written: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(written / "labels", tmp_path / "run")
    for path in list(folder.glob("model.ckpt-best.*")):
        shutil.copy(path, path.with_name(path.name.replace("best", "200")))
    with pytest.raises(LitebertError, match=r"LB-716[\s\S]*model.ckpt-200"):
        import_checkpoint(folder, tmp_path / "model")
    (folder / "checkpoint").write_text('model_checkpoint_path: "/gone/model.ckpt-200"\n')
    report = import_checkpoint(folder, tmp_path / "model")
    assert report.checkpoint == "model.ckpt-200"
    assert any("model.ckpt-best" in note for note in report.notes)


def test_nothing_is_overwritten(written: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious").write_text("mine")
    with pytest.raises(LitebertError, match="LB-619"):
        import_checkpoint(written / "labels", tmp_path / "model")
    assert (tmp_path / "model" / "precious").read_text() == "mine"


def _changed(folder: Path, target: Path, changes: dict[str, object], *, drop: str = "") -> Path:
    copy = shutil.copytree(folder, target)
    table = json.loads((copy / "albert_config.json").read_text()) | changes
    table.pop(drop, None)
    (copy / "albert_config.json").write_text(json.dumps(table))
    return copy


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"hidden_size": 32}, "LB-721"),
        ({"vocab_size": 41}, "LB-721"),
        ({"embedding_size": 16}, "LB-721"),
        ({"num_hidden_groups": 2}, "LB-721"),
        ({"inner_group_num": 64, "num_hidden_layers": 1024, "num_hidden_groups": 1024}, "LB-721"),
        ({"hidden_act": "swish"}, "LB-710"),
        ({"hidden_act": 3}, "LB-710"),
        ({"hidden_size": 10**12}, "LB-708"),
        ({"hidden_size": "many"}, "LB-708"),
        ({"num_attention_heads": 0}, "LB-708"),
    ],
)
def test_a_configuration_of_another_network_is_refused(
    written: Path, tmp_path: Path, changes: dict[str, object], code: str
) -> None:
    folder = _changed(written / "pretraining", tmp_path / "changed", changes)
    with pytest.raises(LitebertError, match=code):
        import_checkpoint(folder, tmp_path / "model")


def test_a_configuration_may_lie_elsewhere_and_lack_what_has_a_default(written: Path, tmp_path: Path) -> None:
    folder = _changed(written / "pretraining", tmp_path / "changed", {}, drop="inner_group_num")
    (folder / "albert_config.json").rename(tmp_path / "mine.json")
    with pytest.raises(LitebertError, match=r"LB-715[\s\S]*--config"):
        import_checkpoint(folder, tmp_path / "model")
    report = import_checkpoint(folder, tmp_path / "model", config=tmp_path / "mine.json")
    assert any("inner_group_num 1" in note for note in report.notes)
    assert any("--tokenizer" in note for note in report.notes)


def test_the_heads_of_xlarge_are_doubted_and_can_be_said(written: Path, tmp_path: Path) -> None:
    path = _changed(written / "pretraining", tmp_path / "x", {"hidden_size": 2048, "num_attention_heads": 32})
    _, notes = read_official_config(path / "albert_config.json")
    assert any("--heads 16" in note for note in notes)
    config, notes = read_official_config(path / "albert_config.json", attention_heads=16)
    assert (config.num_attention_heads, notes) == (16, [])


@pytest.mark.parametrize(
    ("variable", "is_lost", "code"),
    [
        ("bert/pooler/dense/bias", False, "LB-607"),
        ("bert/pooler/dense/bias", True, "LB-723"),
        ("output_bias", True, "LB-723"),
    ],
)
def test_weights_that_are_no_numbers_or_not_there_are_refused(
    written: Path, tmp_path: Path, variable: str, is_lost: bool, code: str
) -> None:
    folder = _changed(written / "labels", tmp_path / "part", {})
    bundle = read_bundle(folder / "model.ckpt-best")
    values = {name: bundle.read(name) for name in bundle.entries if not (is_lost and name == variable)}
    if not is_lost:
        values[variable][3] = torch.nan
    write_bundle(folder / "model.ckpt-best", values)
    with pytest.raises(DamagedError, match=rf"{code}[\s\S]*{variable}"):
        import_checkpoint(folder, tmp_path / "model")
    assert not (tmp_path / "model").exists()


# --- the command -----------------------------------------------------------------------------------------------------


def test_import_says_what_it_read_and_left(written: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(
        cli,
        ["import", "google", str(written / "pretraining"), "--output", str(tmp_path / "model")],
        catch_exceptions=False,
    )
    assert shown.stdout.splitlines() == [
        "read   model.ckpt-best: 32 variables, 3,050 parameters in float32",
        "heads  masked LM, sentence order",
        f"wrote  {tmp_path / 'model'}",
    ]
    assert shown.stderr.splitlines() == [
        "the optimizer was omitted: --optimizer keeps it",
        "no tokenizer was found with the checkpoint: add one with --tokenizer FILE",
    ]


def test_import_reports_in_json(written: Path, vocabulary: Path, tmp_path: Path) -> None:
    flags = ["--labels", "no,maybe,yes", "--tokenizer", str(vocabulary), "--heads", "2", "--json"]
    words = ["import", "google", str(written / "labels"), "--output", str(tmp_path / "model"), *flags]
    report = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout)
    assert report["heads"] == ["sequence-classification"]
    assert report["tokenizer"] == "30k-clean.model"
    assert report["notes"] == []
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["num_attention_heads"] == 2
    assert list(config["id2label"].values()) == ["no", "maybe", "yes"]


def test_a_missing_package_names_the_extra(written: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['google_crc32c'] = None; from litebert.cli import main; main()"
    words = ["import", "google", str(written / "labels"), "--output", str(tmp_path / "model")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'litebert[google]'" in done.stderr
    assert len(done.stderr.splitlines()) == 4
