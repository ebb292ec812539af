"""Model folders become checkpoints with Google's names, and nothing is lost on the way."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model, save_model
from litebert.interop.google import export_checkpoint, import_checkpoint
from litebert.interop.google.bundle import read_bundle
from litebert.interop.google.table import read_table
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.optim import Lamb, state_tensors
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.fromjson import read_vocabulary
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
CHECKPOINTS = {
    "pretraining": {"has_optimizer": True},
    "groups_bfloat16": {},
    "equal_sizes": {},
    "labels": {},
    "one_output": {"head": "multiple-choice"},
    "spans": {},
    "conditional_spans": {},
    "hub": {},
}


def _variables(prefix: Path) -> dict[str, NDArray[np.float32]]:
    bundle = read_bundle(prefix)
    return {name: bundle.read(name) for name in bundle.entries}


def _pretrained(folder: Path, **changes: object) -> Path:
    network = AlbertForPretraining(SHAPE.model_copy(update=changes))
    save_model(network, folder)
    return folder


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_came_from_a_checkpoint_goes_back_bit_for_bit(
    written: Path, numbers: Numbers, tmp_path: Path, name: str
) -> None:
    settings = CHECKPOINTS[name]
    import_checkpoint(written / name, tmp_path / "model", **settings)
    has_optimizer = "has_optimizer" in settings
    report = export_checkpoint(tmp_path / "model", tmp_path / "out", num_shards=3, has_optimizer=has_optimizer)
    found = _variables(tmp_path / "out" / "model.ckpt-best")
    expected = {key.removeprefix("module/"): value for key, value in numbers(name).items()}
    assert report.num_variables == len(found)
    assert found.pop("global_step") == (7 if has_optimizer else 0)
    expected.pop("global_step", None)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert np.array_equal(found[key], value), key


def test_a_checkpoint_in_one_piece_has_tensorflows_data_and_entries(written: Path, tmp_path: Path) -> None:
    import_checkpoint(written / "equal_sizes", tmp_path / "model")
    export_checkpoint(tmp_path / "model", tmp_path / "out")
    theirs, ours = written / "equal_sizes", tmp_path / "out"
    data = "model.ckpt-best.data-00000-of-00001"
    assert (ours / data).read_bytes() == (theirs / data).read_bytes()
    tables = [list(read_table((at / "model.ckpt-best.index").read_bytes())) for at in (theirs, ours)]
    assert tables[0] == tables[1]


def test_the_configuration_goes_back_as_google_writes_it(written: Path, tmp_path: Path) -> None:
    import_checkpoint(written / "groups_bfloat16", tmp_path / "model")
    export_checkpoint(tmp_path / "model", tmp_path / "out")
    theirs = json.loads((written / "groups_bfloat16" / "albert_config.json").read_text())
    del theirs["layers_to_keep"]
    text = (tmp_path / "out" / "albert_config.json").read_text()
    assert text == json.dumps(theirs, indent=2, sort_keys=True) + "\n"


def test_vocabulary_and_state_file_go_along(written: Path, vocabulary: Path, tmp_path: Path) -> None:
    import_checkpoint(written / "labels", tmp_path / "model", tokenizer=vocabulary)
    report = export_checkpoint(tmp_path / "model", tmp_path / "out" / "model.ckpt-12")
    out = tmp_path / "out"
    assert (out / "30k-clean.model").read_bytes() == vocabulary.read_bytes()
    assert (out / "checkpoint").read_text().startswith('model_checkpoint_path: "model.ckpt-12"\n')
    assert {path.name for path in out.iterdir()} == set(report.files)
    assert import_checkpoint(out, tmp_path / "again").notes == ()


def test_the_vocabulary_is_made_from_tokenizer_json_if_that_is_all_there_is(
    written: Path, vocabulary: Path, tmp_path: Path
) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    import_checkpoint(written / "labels", model, tokenizer=vocabulary)
    (model / "spiece.model").unlink()
    assert export_checkpoint(model, out).notes == ()
    assert (out / "30k-clean.model").read_bytes() == read_vocabulary(model).data
    text = "A cat, or 3,000 of them (é)"
    expected = Tokenizer.load(vocabulary).encode_ids([text])
    assert Tokenizer.load(out / "30k-clean.model").encode_ids([text]) == expected
    (model / "tokenizer.json").unlink()
    (note,) = export_checkpoint(model, tmp_path / "bare").notes
    assert note == f"Google's code also needs the vocabulary: no tokenizer at {model}"


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_partial_sharing_becomes_the_unshared_layers_it_equals(tmp_path: Path, sharing: str) -> None:
    model = _pretrained(tmp_path / "model", sharing=sharing, inner_group_num=2)
    report = export_checkpoint(model, tmp_path / "out")
    import_checkpoint(tmp_path / "out", tmp_path / "again")
    unshared = load_model(tmp_path / "again").network
    shared = load_model(model).network
    assert unshared.config.num_hidden_groups == 4
    for step, other in zip(shared.albert.plan, unshared.albert.plan, strict=True):
        for kind, mine, theirs in (
            ("attention", step.attention, other.attention),
            ("feed_forward", step.feed_forward, other.feed_forward),
        ):
            ours = getattr(shared.albert, kind)[mine].state_dict()
            for key, value in getattr(unshared.albert, kind)[theirs].state_dict().items():
                assert torch.equal(ours[key], value), (kind, mine, key)
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
    assert np.array_equal(found["bert/embeddings/word_embeddings/adam_v"], words)
    dense = state["masked_lm.dense.weight/adam_m"]
    assert np.array_equal(found["cls/predictions/transform/dense/kernel/adam_m"], dense.T)
    assert len(found) == 1 + 3 * len(list(network.parameters()))
    assert found["global_step"] == report.optimizer_step == 125_000


def test_bfloat16_is_what_torch_rounds_to(tmp_path: Path) -> None:
    model = _pretrained(tmp_path / "model")
    report = export_checkpoint(model, tmp_path / "out", dtype="bfloat16")
    found = read_bundle(tmp_path / "out" / "model.ckpt-best")
    words = load_model(model).network.albert.embedding.word.weight.detach()
    assert found.entries["bert/embeddings/word_embeddings"].dtype == "bfloat16"
    assert found.entries["global_step"].dtype == "int64"
    stored = found.read("bert/embeddings/word_embeddings")
    assert np.array_equal(stored, words.bfloat16().float().numpy())
    assert any("float32 variables" in note for note in report.notes)


def test_a_head_without_pooler_gets_one_of_zeros_because_googles_graph_has_one(tmp_path: Path) -> None:
    head = HeadConfig(kind="question-answering")
    save_model(AlbertForTask(SHAPE, head), tmp_path / "model")
    report = export_checkpoint(tmp_path / "model", tmp_path / "out")
    found = _variables(tmp_path / "out" / "model.ckpt-best")
    assert not found["bert/pooler/dense/kernel"].any()
    assert found["bert/pooler/dense/bias"].shape == (16,)
    assert any("pooler" in note for note in report.notes)


def test_data_files_are_of_about_the_same_size(tmp_path: Path) -> None:
    model = _pretrained(tmp_path / "model", sharing="none")
    export_checkpoint(model, tmp_path / "out", num_shards=4)
    sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.data-*-of-00004")]
    assert len(sizes) == 4
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.parametrize(
    ("changes", "said"), [({"hidden_act": "gelu"}, "tanh form"), ({"layer_norm_eps": 1e-5}, "1e-12")]
)
def test_what_googles_code_computes_otherwise_is_said(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    report = export_checkpoint(_pretrained(tmp_path / "model", **changes), tmp_path / "out")
    assert any(said in note for note in report.notes)


@pytest.mark.parametrize(
    ("changes", "settings", "code"),
    [
        ({"embedding_size": 16, "embedding_projection": True}, {}, "LB-709"),
        ({}, {"has_optimizer": True}, "LB-726"),
        ({"sharing": "ffn"}, {"has_optimizer": True}, "LB-725"),
        ({}, {"num_shards": 0}, "LB-727"),
        ({}, {"num_shards": 34}, "LB-727"),
    ],
)
def test_what_cannot_be_exported_says_why_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, object], settings: dict[str, object], code: str
) -> None:
    model = _pretrained(tmp_path / "model", **changes)
    with pytest.raises(LitebertError, match=code):
        export_checkpoint(model, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_a_folded_network_cannot_keep_its_optimizer(written: Path, numbers: Numbers, tmp_path: Path) -> None:
    from litebert.interop.google.bundle_writer import Variable, write_bundle

    old = numbers("albert_zh")
    slots = {f"{name}/adam_m": values for name, values in old.items()}
    variables = [Variable(name, values) for name, values in (old | slots).items()]
    write_bundle(tmp_path / "old.ckpt", variables)
    config = written / "albert_zh" / "albert_config.json"
    with pytest.raises(LitebertError, match="LB-725"):
        import_checkpoint(tmp_path / "old.ckpt", tmp_path / "model", config=config, has_optimizer=True)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    model = _pretrained(tmp_path / "model")
    export_checkpoint(model, tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(LitebertError, match="LB-729"):
        export_checkpoint(model, tmp_path / "out" / "other.ckpt")
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}


def test_a_damaged_model_folder_is_not_exported(tmp_path: Path) -> None:
    model = _pretrained(tmp_path / "model")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(DamagedError):
        export_checkpoint(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
