"""What the user must say, where a checkpoint may lie, and what is refused."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from litebert.config import HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model
from litebert.interop.google import import_checkpoint
from litebert.interop.google.bundle import read_bundle
from litebert.interop.google.bundle_writer import Variable, write_bundle
from litebert.interop.google.configuration import read_official_config
from litebert.nn import AlbertForTask
from litebert.tokenizer import Tokenizer


def test_one_output_must_be_explained(written: Path, tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match=r"LB-713[\s\S]*--head multiple-choice"):
        import_checkpoint(written / "one_output", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"head": "sequence-classification"},
            HeadConfig(kind="sequence-classification", labels=("LABEL_0",), problem_type="regression"),
        ),
        (
            {"labels": ["similarity"]},
            HeadConfig(kind="sequence-classification", labels=("similarity",), problem_type="regression"),
        ),
        ({"head": "multiple-choice"}, HeadConfig(kind="multiple-choice")),
    ],
)
def test_one_output_becomes_what_the_user_says(
    written: Path, tmp_path: Path, settings: dict[str, object], expected: HeadConfig
) -> None:
    import_checkpoint(written / "one_output", tmp_path / "model", **settings)
    network = load_model(tmp_path / "model").network
    assert isinstance(network, AlbertForTask)
    assert network.head_config == expected


def test_labels_are_named_or_numbered(written: Path, tmp_path: Path) -> None:
    import_checkpoint(written / "labels", tmp_path / "numbered")
    import_checkpoint(written / "labels", tmp_path / "named", labels=["no", "maybe", "yes"])
    import_checkpoint(written / "labels", tmp_path / "tags", head="token-classification")
    kinds = {name: load_model(tmp_path / name).network.head_config for name in ("numbered", "named")}
    assert kinds["numbered"].labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert kinds["named"].labels == ("no", "maybe", "yes")
    assert load_model(tmp_path / "tags").network.albert.pooler is None


@pytest.mark.parametrize(
    ("name", "settings", "code"),
    [
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
        ("first_format", {}, "LB-717"),
        ("first_format/model.ckpt", {}, "LB-717"),
        ("nowhere", {}, "LB-718"),
        ("pretraining/albert_config.json", {}, "LB-718"),
        ("pretraining/model.ckpt-worst", {}, "LB-718"),
    ],
)
def test_what_cannot_be_imported_says_why_and_leaves_nothing(
    written: Path, tmp_path: Path, name: str, settings: dict[str, object], code: str
) -> None:
    with pytest.raises(LitebertError, match=code):
        import_checkpoint(written / name, tmp_path / "model", **settings)
    assert list(tmp_path.iterdir()) == []


def test_archive_folder_prefix_and_index_mean_the_same(written: Path, vocabulary: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(written / "labels", tmp_path / "albert_base")
    shutil.copy(vocabulary, folder)
    with tarfile.open(tmp_path / "albert_base.tar.gz", "w:gz") as archive:
        archive.add(folder, "albert_base")
    with tarfile.open(tmp_path / "albert_base.tar", "w") as archive:
        archive.add(folder, "./")
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
        assert report.tokenizer == "30k-clean.model"
        assert report.notes == ()
        assert Tokenizer.load(tmp_path / "out" / name).vocab_size == 40
    assert len(weights) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(places)


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
    with pytest.raises(LitebertError, match="LB-728"):
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
        ({"num_hidden_groups": 2}, "LB-720"),
        ({"inner_group_num": 64, "num_hidden_layers": 1024, "num_hidden_groups": 1024}, "LB-720"),
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
    assert config.num_attention_heads == 16
    assert notes == []


def test_weights_that_are_not_numbers_are_refused(written: Path, tmp_path: Path) -> None:
    folder = _changed(written / "labels", tmp_path / "nan", {})
    bundle = read_bundle(folder / "model.ckpt-best")
    values = {name: bundle.read(name) for name in bundle.entries}
    values["bert/pooler/dense/bias"][3] = np.nan
    write_bundle(folder / "model.ckpt-best", [Variable(*each) for each in values.items()])
    with pytest.raises(DamagedError, match=r"LB-722[\s\S]*pooler/dense/bias"):
        import_checkpoint(folder, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("lost", ["bert/pooler/dense/bias", "output_bias"])
def test_a_checkpoint_that_is_not_whole_is_refused(written: Path, tmp_path: Path, lost: str) -> None:
    folder = _changed(written / "labels", tmp_path / "part", {})
    bundle = read_bundle(folder / "model.ckpt-best")
    kept = [Variable(name, bundle.read(name)) for name in bundle.entries if name != lost]
    write_bundle(folder / "model.ckpt-best", kept)
    with pytest.raises(DamagedError, match=rf"LB-723[\s\S]*{lost}"):
        import_checkpoint(folder, tmp_path / "model")
