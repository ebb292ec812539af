"""Model folders become checkpoints with Google's names, and nothing is lost on the way."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    PreTrainedModel,
)

from litebert.cli import run
from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import load_model, save_model
from litebert.interop.bundle import read_bundle, read_table
from litebert.interop.google import export_checkpoint, import_checkpoint
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.optim import Lamb, state_tensors
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import read_vocabulary
from litebert.train.checkpoint import Checkpoints, RunProgress

Numbers = Callable[[str], Mapping[str, NDArray[np.float32]]]
SHAPE = AlbertConfig(
    vocab_size=40,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=12,
)
CHECKPOINTS = {key: {} for key in ("groups_bfloat16", "equal_sizes", "labels", "spans", "conditional_spans", "hub")}
CHECKPOINTS |= {"pretraining": {"has_optimizer": True}, "one_output": {"head": "multiple-choice"}}
POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
# checkpoint, what the user says of its head, transformers' class, variables that class drops
WAYS = [
    ("pretraining", {}, AlbertForPreTraining, set()),
    ("groups_bfloat16", {}, AlbertForPreTraining, set()),
    ("equal_sizes", {}, AlbertForPreTraining, set()),
    ("labels", {}, AlbertForSequenceClassification, set()),
    ("one_output", {"head": "sequence-classification"}, AlbertForSequenceClassification, set()),
    ("one_output", {"head": "multiple-choice"}, AlbertForMultipleChoice, set()),
    ("labels", {"head": "token-classification"}, AlbertForTokenClassification, POOLER),
    ("spans", {}, AlbertForQuestionAnswering, POOLER),
]


def _variables(prefix: Path) -> dict[str, Tensor]:
    bundle = read_bundle(prefix)
    return {name: bundle.read(name) for name in bundle.entries}


def _pretrained(folder: Path, **changes: object) -> Path:
    save_model(AlbertForPretraining(SHAPE.model_copy(update=changes)), folder)
    return folder


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_came_from_a_checkpoint_goes_back_bit_for_bit(
    written: Path, numbers: Numbers, tmp_path: Path, name: str
) -> None:
    settings = CHECKPOINTS[name]
    import_checkpoint(written / name, tmp_path / "model", **settings)
    has_optimizer = "has_optimizer" in settings
    report = export_checkpoint(tmp_path / "model", tmp_path / "out", has_optimizer=has_optimizer)
    found = _variables(tmp_path / "out" / "model.ckpt-best")
    expected = {key.removeprefix("module/"): value for key, value in numbers(name).items()}
    assert report.num_variables == len(found)
    assert found.pop("global_step") == (7 if has_optimizer else 0)
    expected.pop("global_step", None)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert np.array_equal(found[key], value), key


@pytest.mark.parametrize(("name", "said", "kind", "dropped"), WAYS)
def test_the_way_through_transformers_and_back_is_bit_equal(
    written: Path, tmp_path: Path, name: str, said: dict[str, object], kind: type[PreTrainedModel], dropped: set[str]
) -> None:
    import_checkpoint(written / name, tmp_path / "imported", **said)
    kind.from_pretrained(tmp_path / "imported").save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    assert loaded.missing == frozenset()
    save_model(loaded.network, tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "exported")
    before, after = (_variables(tmp_path / at / "model.ckpt-best") for at in (written / name, "exported"))
    weights = {name for name in before if not name.endswith(("_m", "_v", "step"))}
    assert weights == after.keys() - {"global_step"}
    for variable in weights - dropped:
        assert torch.equal(before[variable].float(), after[variable]), variable


def test_bytes_and_configuration_are_those_of_google(written: Path, tmp_path: Path) -> None:
    for name in ("equal_sizes", "groups_bfloat16"):
        import_checkpoint(written / name, tmp_path / name / "model")
        export_checkpoint(tmp_path / name / "model", tmp_path / name)
    theirs, ours = written / "equal_sizes", tmp_path / "equal_sizes"
    data = "model.ckpt-best.data-00000-of-00001"
    assert (ours / data).read_bytes() == (theirs / data).read_bytes()
    tables = [list(read_table((at / "model.ckpt-best.index").read_bytes())) for at in (theirs, ours)]
    assert tables[0] == tables[1]
    table = json.loads((written / "groups_bfloat16" / "albert_config.json").read_text())
    del table["layers_to_keep"]
    text = (tmp_path / "groups_bfloat16" / "albert_config.json").read_text()
    assert text == json.dumps(table, indent=2, sort_keys=True) + "\n"


def test_the_vocabulary_goes_along_or_is_made_from_tokenizer_json(
    written: Path, vocabulary: Path, tmp_path: Path
) -> None:
    model, out = tmp_path / "model", tmp_path / "first"
    import_checkpoint(written / "labels", model, tokenizer=vocabulary)
    report = export_checkpoint(model, out / "model.ckpt-12")
    assert (out / "30k-clean.model").read_bytes() == vocabulary.read_bytes()
    assert (out / "checkpoint").read_text().startswith('model_checkpoint_path: "model.ckpt-12"\n')
    assert {path.name for path in out.iterdir()} == set(report.files)
    assert import_checkpoint(out, tmp_path / "again").notes == ()
    (model / "spiece.model").unlink()
    out = tmp_path / "out"
    assert export_checkpoint(model, out).notes == ()
    assert (out / "30k-clean.model").read_bytes() == read_vocabulary(model).data
    text = "A cat, or 3,000 of them (é)"
    expected = Tokenizer.load(vocabulary).encode_ids([text])
    assert Tokenizer.load(out / "30k-clean.model").encode_ids([text]) == expected
    (model / "tokenizer.json").unlink()
    (note,) = export_checkpoint(model, tmp_path / "bare").notes
    assert note.startswith("Google's code also needs the vocabulary")


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_partial_sharing_becomes_the_unshared_layers_it_equals(tmp_path: Path, sharing: str) -> None:
    model = _pretrained(tmp_path / "model", sharing=sharing, inner_group_num=2)
    report = export_checkpoint(model, tmp_path / "out")
    import_checkpoint(tmp_path / "out", tmp_path / "again")
    unshared, shared = load_model(tmp_path / "again").network, load_model(model).network
    assert unshared.config.num_hidden_groups == 4
    for step, other in zip(shared.albert.plan, unshared.albert.plan, strict=True):
        for kind in ("attention", "feed_forward"):
            ours = getattr(shared.albert, kind)[getattr(step, kind)].state_dict()
            theirs = getattr(unshared.albert, kind)[getattr(other, kind)].state_dict()
            assert all(torch.equal(ours[key], value) for key, value in theirs.items())
    assert any(sharing in note for note in report.notes)


def test_the_optimizer_of_a_run_goes_along(tmp_path: Path) -> None:
    network = AlbertForPretraining(SHAPE)
    optimizer = Lamb(network.parameters())
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    step = Checkpoints(tmp_path, keep=1).save(network, optimizer, RunProgress(step=125_000))
    report = export_checkpoint(step, tmp_path / "model.ckpt-125000", has_optimizer=True)
    found = _variables(tmp_path / "model.ckpt-125000")
    state = state_tensors(optimizer, network.named_parameters())
    words = state["albert.embedding.word.weight/adam_v"]
    assert torch.equal(found["bert/embeddings/word_embeddings/adam_v"], words)
    dense = state["masked_lm.dense.weight/adam_m"]
    assert torch.equal(found["cls/predictions/transform/dense/kernel/adam_m"], dense.T)
    assert len(found) == 1 + 3 * len(list(network.parameters()))
    assert found["global_step"] == report.optimizer_step == 125_000


def test_a_head_without_pooler_gets_one_of_zeros_because_googles_graph_has_one(tmp_path: Path) -> None:
    save_model(AlbertForTask(SHAPE, HeadConfig(kind="question-answering")), tmp_path / "model")
    report = export_checkpoint(tmp_path / "model", tmp_path / "out")
    found = _variables(tmp_path / "out" / "model.ckpt-best")
    assert not found["bert/pooler/dense/kernel"].any()
    assert found["bert/pooler/dense/bias"].shape == (16,)
    assert any("pooler" in note for note in report.notes)


@pytest.mark.parametrize(
    ("changes", "said"), [({"hidden_act": "gelu"}, "tanh form"), ({"layer_norm_eps": 1e-5}, "1e-12")]
)
def test_what_googles_code_computes_otherwise_is_said(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    report = export_checkpoint(_pretrained(tmp_path / "model", **changes), tmp_path / "out")
    assert any(said in note for note in report.notes)


@pytest.mark.parametrize(
    ("changes", "has_optimizer", "code"),
    [
        ({"embedding_size": 16, "embedding_projection": True}, False, "LB-709"),
        ({}, True, "LB-726"),
        ({"sharing": "ffn"}, True, "LB-726"),
        ({"attention": "local", "attention_window": 2}, False, r"LB-709[\s\S]*attention local"),
    ],
)
def test_what_cannot_be_exported_says_why_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, object], has_optimizer: bool, code: str
) -> None:
    model = _pretrained(tmp_path / "model", **changes)
    with pytest.raises(LitebertError, match=code):
        export_checkpoint(model, tmp_path / "out", has_optimizer=has_optimizer)
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    model = _pretrained(tmp_path / "model")
    export_checkpoint(model, tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(LitebertError, match="LB-619"):
        export_checkpoint(model, tmp_path / "out" / "other.ckpt")
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}


def test_the_command_says_what_it_wrote(written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import_checkpoint(written / "pretraining", tmp_path / "m", has_optimizer=True)
    assert run(["export", "google", str(tmp_path / "m"), str(tmp_path / "out"), "--optimizer"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("model.ckpt-best: 97 variables, 3,050 parameters in float32")
    assert lines[1] == "steps  7, with the optimizer's moments"
    assert lines[2].startswith("files  albert_config.json, ")
    assert run(["export", "google", str(tmp_path / "m"), str(tmp_path / "again"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {path.name for path in (tmp_path / "again").iterdir()} == set(report["files"])
    assert report["num_variables"] == 33
