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
from numpy.typing import NDArray
from safetensors.numpy import load_file
from transformers import AlbertForPreTraining

from litebert.cli import run
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model
from litebert.interop.bundle import read_bundle, write_bundle
from litebert.interop.google import import_checkpoint, read_official_config
from litebert.nn import AlbertForTask, Batch
from litebert.optim import AdamW, load_state_tensors, parameter_groups, state_tensors
from litebert.tokenizer import Tokenizer

Numbers = Callable[[str], Mapping[str, NDArray[np.float32]]]


def _pairs(modules: dict[str, str], ours: str = "", theirs: str = "", **kinds: str) -> dict[str, str]:
    """Spell out transformers' names beside Google's; by default a layer norm's, or a linear layer's."""
    names = {}
    for module, other in modules.items():
        usual = (
            {"weight": "gamma", "bias": "beta"} if "norm" in module.lower() else {"weight": "kernel", "bias": "bias"}
        )
        names |= {f"{ours}{module}.{kind}": f"{theirs}{other}/{end}" for kind, end in (kinds or usual).items()}
    return names


# transformers' names (spec of the folder) beside Google's: written out, not taken from our table.
THEIR_BLOCK = "bert/encoder/transformer/group_{}/inner_group_{}/"
LAYER = {
    "attention.query": "attention_1/self/query",
    "attention.key": "attention_1/self/key",
    "attention.value": "attention_1/self/value",
    "attention.dense": "attention_1/output/dense",
    "attention.LayerNorm": "LayerNorm",
    "ffn": "ffn_1/intermediate/dense",
    "ffn_output": "ffn_1/intermediate/output/dense",
    "full_layer_layer_norm": "LayerNorm_1",
}
ENCODER = {
    "albert.embeddings.word_embeddings.weight": "bert/embeddings/word_embeddings",
    "albert.embeddings.position_embeddings.weight": "bert/embeddings/position_embeddings",
    "albert.embeddings.token_type_embeddings.weight": "bert/embeddings/token_type_embeddings",
    **_pairs({"albert.embeddings.LayerNorm": "bert/embeddings/LayerNorm", "albert.pooler": "bert/pooler/dense"}),
    **_pairs({"albert.encoder.embedding_hidden_mapping_in": "bert/encoder/embedding_hidden_mapping_in"}),
}
OUTPUT = {"weight": "output_weights", "bias": "output_bias"}
MASKED_LM = _pairs({"dense": "dense", "LayerNorm": "LayerNorm"}, "predictions.", "cls/predictions/transform/")
MASKED_LM["predictions.bias"] = "cls/predictions/output_bias"
CONDITIONAL = {
    **_pairs({"start_logits.dense": "start_logits/dense", "end_logits.LayerNorm": "end_logits/LayerNorm"}),
    **_pairs({"end_logits.dense_0": "end_logits/dense_0", "end_logits.dense_1": "end_logits/dense_1"}),
    **_pairs({"answer_class.dense_0": "answer_class/dense_0"}),
    "answer_class.dense_1.weight": "answer_class/dense_1/kernel",
}


def _layers(groups: int = 1, inner: int = 1) -> dict[str, str]:
    places = [(group, each) for group in range(groups) for each in range(inner)]
    ours = "albert.encoder.albert_layer_groups.{}.albert_layers.{}."
    return {k: v for place in places for k, v in _pairs(LAYER, ours.format(*place), THEIR_BLOCK.format(*place)).items()}


BASE = ENCODER | _layers()
ORDER = _pairs({"sop_classifier.classifier": "cls/seq_relationship"}, **OUTPUT)
CASES = {
    "pretraining": BASE | MASKED_LM | ORDER,
    "groups_bfloat16": ENCODER | _layers(2, 2) | MASKED_LM | ORDER,
    "labels": BASE | {"classifier.weight": "output_weights", "classifier.bias": "output_bias"},
    "spans": BASE | _pairs({"qa_outputs": "cls/squad"}, **OUTPUT),
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
        expected = theirs[variable].T if variable.endswith("/kernel") else theirs[variable]
        assert np.array_equal(found[ours], expected), variable
    assert (report.num_variables, report.unused) == (len(CASES[name]), ())
    loaded = load_model(tmp_path / "model")
    assert loaded.unused == (("albert.pooler.bias", "albert.pooler.weight") if "spans" in name else ())
    assert loaded.missing == set(report.missing)
    if name == "hub":
        assert loaded.missing == {"sentence_order.classifier.weight", "sentence_order.classifier.bias"}
        assert report.heads == ("masked LM",) and any("sentence_order" in note for note in report.notes)


def test_equal_sizes_have_no_projection_and_transformers_agrees(written: Path, tmp_path: Path) -> None:
    import_checkpoint(written / "equal_sizes", tmp_path / "model")
    ours = load_model(tmp_path / "model").network
    theirs, report = AlbertForPreTraining.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(report.values())
    assert (ours.config.projects_embeddings, ours.config.hidden_act) == (False, "relu")
    ids = torch.tensor([[2, 7, 9, 3]])
    with torch.no_grad():
        mine, other = ours(Batch.from_padded(ids), torch.arange(4)), theirs.eval()(ids)
    assert torch.allclose(mine.masked_lm, other.prediction_logits[0], atol=1e-5)
    assert torch.allclose(mine.sentence_order, other.sop_logits, atol=1e-5)


def test_every_kind_of_number_is_read_but_no_slice(written: Path) -> None:
    bundle = read_bundle(written / "kinds" / "model.ckpt-best")
    for kind in ("float16", "float32", "float64", "bfloat16", "int32", "int64"):
        assert bundle.dtype(kind) == getattr(torch, kind)
        assert bundle.read(kind).tolist() == [[-3, -2, -1], [0, 1, 2]]
    bundle = read_bundle(written / "sliced" / "model.ckpt")
    with pytest.raises(LitebertError, match=r"LB-706.*word_embeddings"):
        bundle.read("bert/embeddings/word_embeddings")
    assert bundle.read("whole").tolist() == [0, 0]


def test_the_optimizer_is_kept_when_asked_for(written: Path, numbers: Numbers, tmp_path: Path) -> None:
    report = import_checkpoint(written / "pretraining", tmp_path / "model", has_optimizer=True)
    network = load_model(tmp_path / "model").network
    optimizer = AdamW(parameter_groups(network.named_parameters(), weight_decay=0.01))
    kept = load_file(tmp_path / "model" / "optimizer.safetensors")
    load_state_tensors(optimizer, network.named_parameters(), {name: torch.from_numpy(t) for name, t in kept.items()})
    state, theirs = state_tensors(optimizer, network.named_parameters()), numbers("pretraining")
    kernel = f"{THEIR_BLOCK.format(0, 0)}ffn_1/intermediate/dense/kernel"
    for slot in ("adam_m", "adam_v"):
        ours = state[f"albert.feed_forward.0.intermediate.weight/{slot}"]
        assert np.array_equal(ours, theirs[f"{kernel}/{slot}"].T)
        assert np.array_equal(state[f"masked_lm.bias/{slot}"], theirs[f"cls/predictions/output_bias/{slot}"])
    assert report.optimizer_step == 7
    assert json.loads((tmp_path / "model" / "state.json").read_text()) == {"step": 7}


def test_moments_that_never_were_are_zeros_and_strangers_are_named(
    written: Path, numbers: Numbers, tmp_path: Path
) -> None:
    never = ("bert/pooler/dense/kernel/adam_m", "bert/pooler/dense/kernel/adam_v", "global_step")
    theirs = {name: torch.from_numpy(each) for name, each in numbers("pretraining").items() if name not in never}
    write_bundle(tmp_path / "x.ckpt", theirs | {"bert/stranger": torch.zeros(3)})
    config = written / "pretraining" / "albert_config.json"
    report = import_checkpoint(tmp_path / "x.ckpt", tmp_path / "model", config=config, has_optimizer=True)
    kept = load_file(tmp_path / "model" / "optimizer.safetensors")
    assert kept["albert.pooler.weight/adam_v"].shape == (16, 16) and not kept["albert.pooler.weight/adam_v"].any()
    assert kept["albert.pooler.bias/adam_v"].any()
    assert (report.optimizer_step, report.unused) == (0, ("bert/stranger",))
    assert any("bert/stranger" in note for note in report.notes)


# --- what the user must say, and where a checkpoint may lie ----------------------------------------------------------

NUMBERED = ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("name", "settings", "kind", "names", "problem"),
    [
        ("one_output", {"head": "sequence-classification"}, "sequence-classification", ("LABEL_0",), "regression"),
        ("one_output", {"labels": ["similarity"]}, "sequence-classification", ("similarity",), "regression"),
        ("one_output", {"head": "multiple-choice"}, "multiple-choice", (), None),
        ("labels", {}, "sequence-classification", NUMBERED, None),
        ("labels", {"labels": ["no", "maybe", "yes"]}, "sequence-classification", ("no", "maybe", "yes"), None),
        ("labels", {"head": "token-classification"}, "token-classification", NUMBERED, None),
    ],
)
def test_a_classifier_becomes_what_the_user_says(
    written: Path, tmp_path: Path, name: str, settings: dict[str, object], kind: str, names: tuple[str], problem: object
) -> None:
    import_checkpoint(written / name, tmp_path / "model", **settings)
    network = load_model(tmp_path / "model").network
    assert isinstance(network, AlbertForTask)
    assert (network.head_config.kind, network.head_config.labels) == (kind, names)
    assert problem in (None, network.head_config.problem_type)
    assert (network.albert.pooler is None) == (kind == "token-classification")


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("one_output", {}, r"LB-713[\s\S]*--head multiple-choice"),
        ("labels", {"labels": ["a", "b"]}, "LB-714"),
        ("labels", {"labels": ["a", "a", "b"]}, "LB-714"),
        ("labels", {"head": "multiple-choice"}, "LB-714"),
        ("one_output", {"head": "multiple-choice", "labels": ["a"]}, "LB-714"),
        ("pretraining", {"head": "sequence-classification"}, "LB-714.*no task head"),
        ("pretraining", {"labels": ["a"]}, "LB-714"),
        ("spans", {"head": "multiple-choice"}, "LB-714.*a question-answering head"),
        ("labels", {"has_optimizer": True}, "LB-724"),
        ("pretraining", {"attention_heads": 3}, "LB-601"),
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
    best = folder / "model.ckpt-best"
    places = [tmp_path / "albert_base.tar.gz", tmp_path / "albert_base.tar", folder, tmp_path, best]
    places += [folder / f"{best.name}.index", folder / f"{best.name}.data-00000-of-00001"]
    weights = set()
    for number, path in enumerate(places):
        output = tmp_path / "out" / str(number)
        report = import_checkpoint(path, output)
        weights.add((output / "model.safetensors").read_bytes())
        assert (report.tokenizer, report.notes) == ("30k-clean.model", ())
        assert Tokenizer.load(output).vocab_size == 40
    assert len(weights) == 1
    assert len(list((tmp_path / "out").iterdir())) == len(places)  # no unpacked archive is left


def test_the_state_file_says_which_of_several_checkpoints(written: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(written / "labels", tmp_path / "run")
    for path in list(folder.glob("model.ckpt-best.*")):
        shutil.copy(path, path.with_name(path.name.replace("best", "200")))
    for state in (None, "", 'model_checkpoint_path: ""\n', 'model_checkpoint_path: "/gone/"\n'):
        if state is not None:
            (folder / "checkpoint").write_text(state)
        with pytest.raises(LitebertError, match=r"LB-716[\s\S]*model.ckpt-200"):
            import_checkpoint(folder, tmp_path / "model")
    (folder / "checkpoint").write_text('model_checkpoint_path: "/gone/model.ckpt-200"\n')
    report = import_checkpoint(folder, tmp_path / "model")
    assert report.checkpoint == "model.ckpt-200"
    assert any("model.ckpt-best" in note for note in report.notes)
    before = (tmp_path / "model" / "config.json").stat().st_mtime_ns
    with pytest.raises(LitebertError, match="LB-619"):
        import_checkpoint(folder, tmp_path / "model")
    assert (tmp_path / "model" / "config.json").stat().st_mtime_ns == before


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
        ({"hidden_size": 10**12}, "LB-601"),
        ({"hidden_size": "many"}, "LB-601"),
        ({"num_attention_heads": 0}, "LB-601"),
    ],
)
def test_a_configuration_of_another_network_is_refused(
    written: Path, tmp_path: Path, changes: dict[str, object], code: str
) -> None:
    folder = _changed(written / "pretraining", tmp_path / "changed", changes)
    with pytest.raises(LitebertError, match=code):
        import_checkpoint(folder, tmp_path / "model")


def test_a_configuration_may_lie_elsewhere_lack_defaults_and_be_doubted(written: Path, tmp_path: Path) -> None:
    folder = _changed(written / "pretraining", tmp_path / "changed", {}, drop="inner_group_num")
    (folder / "albert_config.json").rename(tmp_path / "mine.json")
    with pytest.raises(LitebertError, match=r"LB-715[\s\S]*--config"):
        import_checkpoint(folder, tmp_path / "model")
    report = import_checkpoint(folder, tmp_path / "model", config=tmp_path / "mine.json")
    assert any("inner_group_num 1" in note for note in report.notes)
    assert any("--tokenizer" in note for note in report.notes)
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


def test_import_says_what_it_read_and_left(
    written: Path, vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", "google", str(written / "pretraining"), "--output", str(tmp_path / "model")]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "read   model.ckpt-best: 32 variables, 3,050 parameters in float32",
        "heads  masked LM, sentence order",
        f"wrote  {tmp_path / 'model'}",
    ]
    assert shown.err.splitlines() == [
        "the optimizer was omitted: --optimizer keeps it",
        "no tokenizer was found with the checkpoint: add one with --tokenizer FILE",
    ]
    flags = ["--labels", "no,maybe,yes", "--tokenizer", str(vocabulary), "--heads", "2", "--json"]
    assert run(["import", "google", str(written / "labels"), "--output", str(tmp_path / "labels"), *flags]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["heads"], report["notes"]) == (["sequence-classification"], [])
    config = json.loads((tmp_path / "labels" / "config.json").read_text())
    assert (config["num_attention_heads"], list(config["id2label"].values())) == (2, ["no", "maybe", "yes"])


def test_the_folder_here_may_be_imported_under_any_name(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["import", "google", ".", "--output", "a\nb"]) == 1
    assert capsys.readouterr().err.startswith("LB-718: there is no TensorFlow checkpoint at .\n")
    monkeypatch.chdir(written / "labels")
    assert run(["import", "google", ".", "--output", str(tmp_path / "a\nb")]) == 0
    assert load_model(tmp_path / "a\nb").missing == frozenset()


def test_a_missing_package_names_the_extra(written: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['google_crc32c'] = None; from litebert.cli import main; main()"
    words = ["import", "google", str(written / "labels"), "--output", str(tmp_path / "model")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'litebert[google]'" in done.stderr and len(done.stderr.splitlines()) == 4
