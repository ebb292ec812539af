"""Checkpoints of real TensorFlow (tests/tensorflow/checkpoints.py) become model folders
bit for bit.
"""

import json
import re
import shutil
import tarfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.folder import read_folder, read_head
from litebert.interop.bundle import read_bundle, read_table
from litebert.interop.google import import_checkpoint, read_official_config
from litebert.tokenizer import Tokenizer, train_tokenizer
from tests.interop.google.tables import table_bytes

WRITTEN = Path(__file__).parent / "fixtures"
BEST = "model.ckpt-best"
SHAPE, _ = read_official_config(WRITTEN / "pretraining" / "albert_config.json")


def _numbers(name: str) -> Mapping[str, NDArray[np.float32]]:
    """Return what TensorFlow wrote into a checkpoint."""
    with np.load(WRITTEN / name / "expected.npz", allow_pickle=False) as table:
        return {key.removeprefix("module/"): value for key, value in table.items()}


def _config(path: Path, **changes: object) -> Path:
    """Write a changed albert_config.json; a value of None removes a name."""
    table = (
        json.loads((WRITTEN / "pretraining" / "albert_config.json").read_text())
        | changes
    )
    path.write_text(
        json.dumps({name: value for name, value in table.items() if value is not None})
    )
    return path


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a SentencePiece model with as many pieces as the checkpoints have word
    embeddings.
    """
    words = ["".join(letters) for letters in product("aeinrst", repeat=3)]
    path = tmp_path_factory.mktemp("vocabulary") / "30k-clean.model"
    path.write_bytes(train_tokenizer(words, vocab_size=40))
    return path


# --- Google's names of transformers' tensors, by rules written for this test instead of our own table  # noqa: E501

THEIR_BLOCK = "bert/encoder/transformer/group_{}/inner_group_{}/"
SPELLING = {
    r"^albert\.": "bert/",
    r"albert_layer_groups\.(\d)\.albert_layers\.(\d)": (
        r"transformer/group_\1/inner_group_\2"
    ),
    r"attention\.(query|key|value)": r"attention_1/self/\1",
    r"attention\.dense": "attention_1/output/dense",
    r"attention\.LayerNorm": "LayerNorm",
    r"full_layer_layer_norm": "LayerNorm_1",
    r"ffn_output": "ffn_1/intermediate/output/dense",
    r"ffn\.": "ffn_1/intermediate/dense.",
    r"pooler": "pooler/dense",
    r"^predictions\.bias": "cls/predictions/output_bias",
    r"^predictions": "cls/predictions/transform",
    r"^sop_classifier\.classifier\.weight": "cls/seq_relationship/output_weights",
    r"^sop_classifier\.classifier\.bias": "cls/seq_relationship/output_bias",
    r"^classifier\.(weight|bias)": r"output_\1",
    r"^qa_outputs\.(weight|bias)": r"cls/squad/output_\1",
    r"output_weight$": "output_weights",
    r"_embeddings\.weight": "_embeddings",
    r"(LayerNorm\w*)\.weight": r"\1/gamma",
    r"(LayerNorm\w*)\.bias": r"\1/beta",
    r"\.weight$": "/kernel",
    r"\.": "/",
}


def _spelt(name: str) -> str:
    """Return Google's name of a tensor of transformers, or of our conditional head."""
    for pattern, replacement in SPELLING.items():
        name = re.sub(pattern, replacement, name)
    return name


CHECKPOINTS = (
    "pretraining",
    "groups_bfloat16",
    "equal_sizes",
    "labels",
    "one_output",
    "spans",
    "conditional_spans",
)


@pytest.mark.parametrize("name", [*CHECKPOINTS, "hub"])
def test_every_variable_is_imported_under_its_name_bit_for_bit(
    tmp_path: Path, name: str
) -> None:
    report = import_checkpoint(
        WRITTEN / name,
        tmp_path / "model",
        head="multiple-choice" if name[0] == "o" else None,
    )
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    not_kept = ("global_step", "/adam_m", "/adam_v")
    theirs = {
        key: value
        for key, value in _numbers(name).items()
        if not key.endswith(not_kept)
    }
    if name == "equal_sizes":  # transformers needs an identity where E = H
        mapping = "albert.encoder.embedding_hidden_mapping_in"
        assert (
            np.array_equal(tensors.pop(f"{mapping}.weight"), np.eye(16))
            and not tensors.pop(f"{mapping}.bias").any()
        )
    idle = ()
    if "spans" in name:  # Google's graph has a pooler under every head
        idle = ("bert/pooler/dense/bias", "bert/pooler/dense/kernel")
    assert {_spelt(ours) for ours in tensors} == theirs.keys() - set(idle)
    for ours, values in tensors.items():
        variable = _spelt(ours)
        assert np.array_equal(
            values,
            theirs[variable].T if variable.endswith("/kernel") else theirs[variable],
        ), ours
    assert report.unused == idle
    loaded = read_folder(tmp_path / "model")
    assert loaded.unused == ()
    assert loaded.missing == set(report.missing)
    if name == "hub":
        assert loaded.missing == {
            "sentence_order.classifier.weight",
            "sentence_order.classifier.bias",
        }
        assert report.architecture == "AlbertForMaskedLM"


def test_every_data_type_is_read_and_slices_are_refused() -> None:
    bundle = read_bundle(WRITTEN / "kinds" / BEST)
    for kind in ("float16", "float32", "float64", "bfloat16", "int32", "int64"):
        assert bundle.dtype(kind) == getattr(torch, kind)
        assert bundle.read(kind).tolist() == [[-3, -2, -1], [0, 1, 2]]
    bundle = read_bundle(WRITTEN / "sliced" / "model.ckpt")
    with pytest.raises(LitebertError, match=r"LB-706.*word_embeddings"):
        bundle.read("bert/embeddings/word_embeddings")
    assert bundle.read("whole").tolist() == [0, 0]


def test_variables_that_are_none_of_ours_are_named(tmp_path: Path) -> None:
    folder = shutil.copytree(WRITTEN / "pretraining", tmp_path / "with_strangers")
    index = folder / f"{BEST}.index"
    rows = dict(read_table(index.read_bytes()))
    bias = b"bert/pooler/dense/bias"
    # the slot of another optimizer, another variable
    for name in (bias + b"/average", b"stranger"):
        rows[name] = rows[bias]
    index.write_bytes(table_bytes(sorted(rows.items())))
    report = import_checkpoint(folder, tmp_path / "model")
    assert report.unused == ("bert/pooler/dense/bias/average", "stranger")
    assert "not used: stranger" in str(report)


# --- what the user must specify, and where a checkpoint may be ------------------------

OF_TEXTS = "sequence-classification"
OF_TOKENS = "token-classification"
NAMES = ("no", "maybe", "yes")
NUMBERED = ("LABEL_0", "LABEL_1", "LABEL_2")
SCORE = {"kind": OF_TEXTS, "problem_type": "regression"}


CLASSIFIERS = [
    ("one_output", {"head": OF_TEXTS}, HeadConfig(labels=("LABEL_0",), **SCORE)),
    (
        "one_output",
        {"labels": ["similarity"]},
        HeadConfig(labels=("similarity",), **SCORE),
    ),
    ("one_output", {"head": "multiple-choice"}, HeadConfig(kind="multiple-choice")),
    ("labels", {}, HeadConfig(kind=OF_TEXTS, labels=NUMBERED)),
    ("labels", {"labels": NAMES}, HeadConfig(kind=OF_TEXTS, labels=NAMES)),
    ("labels", {"head": OF_TOKENS}, HeadConfig(kind=OF_TOKENS, labels=NUMBERED)),
]


def test_a_classifier_gets_the_head_that_the_user_names(tmp_path: Path) -> None:
    for number, (name, settings, head) in enumerate(CLASSIFIERS):
        import_checkpoint(WRITTEN / name, tmp_path / str(number), **settings)
        assert read_head(tmp_path / str(number)) == head


FOREIGN = [{"hidden_size": 32}, {"vocab_size": 41}, {"embedding_size": 16}]
IMPOSSIBLE = [
    {"hidden_size": 10**12},
    {"hidden_size": "many"},
    {"num_attention_heads": 0},
]


REFUSED = [
    ("one_output", {}, r"LB-714[\s\S]*multiple-choice \(RACE\)"),
    *(
        ("labels", {"labels": labels}, "LB-714")
        for labels in (["a", "b"], ["a", "a", "b"])
    ),
    ("labels", {"head": "multiple-choice"}, "LB-714"),
    ("one_output", {"head": "multiple-choice", "labels": ["a"]}, "LB-714"),
    ("pretraining", {"head": "sequence-classification"}, "LB-714.*no task head"),
    ("spans", {"head": "multiple-choice"}, "LB-714.*a question-answering head"),
    ("pretraining", {"tokenizer": Path("nowhere.model")}, "LB-004"),
    *((name, {}, "LB-719") for name in ("sliced", "objects")),
    *(
        (name, {}, "LB-718")
        for name in (
            "first_format/model.ckpt",
            "nowhere",
            "pretraining/albert_config.json",
        )
    ),
    *(("pretraining", {"config": config}, "LB-60[46]") for config in FOREIGN),
    ("pretraining", {"config": {"num_hidden_groups": 2}}, "LB-721"),
    *(("pretraining", {"config": config}, "LB-601") for config in IMPOSSIBLE),
    *(
        (
            "pretraining",
            {"config": {"hidden_act": activation}},
            r"LB-601[\s\S]*hidden_act",
        )
        for activation in ("swish", 3)
    ),
]


def test_an_import_that_fails_is_one_clear_error_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    output = tmp_path / "out" / "model"
    for name, settings, said in REFUSED:
        if isinstance(changes := settings.get("config"), dict):
            settings = {"config": _config(tmp_path / "other.json", **changes)}
        with pytest.raises(LitebertError, match=said):
            import_checkpoint(WRITTEN / name, output, **settings)
        assert not output.parent.exists() or not list(output.parent.iterdir())


def test_archive_folder_prefix_and_index_mean_the_same(
    vocabulary: Path, tmp_path: Path, monkeypatch
) -> None:
    folder = shutil.copytree(WRITTEN / "labels", tmp_path / "albert_base")
    shutil.copy(vocabulary, folder)
    archives = [tmp_path / "albert_base.tar.gz", tmp_path / "flat.tgz"]
    for path, inside in zip(archives, ("albert_base", "./"), strict=True):
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, inside)
    places = [*archives, folder, tmp_path, folder / BEST, *folder.glob(f"{BEST}.*")]
    weights = set()
    for number, path in enumerate(places):
        output = tmp_path / "out" / str(number)
        assert (
            import_checkpoint(path, output).notes == ()
            and Tokenizer.load(output).vocab_size == 40
        )
        weights.add((output / "model.safetensors").read_bytes())
    assert len(weights) == 1
    # no unpacked archive is left
    assert len(list((tmp_path / "out").iterdir())) == len(places) == 7
    # one of several is chosen by its prefix
    for path in list(folder.glob(f"{BEST}.*")):
        shutil.copy(path, path.with_name(path.name.replace("best", "200")))
    with pytest.raises(
        LitebertError,
        match=r"LB-718: there is more than one[\s\S]*model.ckpt-200, model.ckpt-best",
    ):
        import_checkpoint(folder, tmp_path / "model")
    import_checkpoint(folder / "model.ckpt-200", tmp_path / "model")
    with pytest.raises(LitebertError, match="LB-619"):
        import_checkpoint(folder / BEST, tmp_path / "model")
    monkeypatch.chdir(WRITTEN / "labels")
    # the current folder, any name of the output
    import_checkpoint(Path(), tmp_path / "a\nb")


def test_a_configuration_may_be_elsewhere_lack_defaults_and_be_doubted(
    tmp_path: Path,
) -> None:
    folder = shutil.copytree(WRITTEN / "pretraining", tmp_path / "without")
    (folder / "albert_config.json").unlink()
    with pytest.raises(LitebertError, match=r"LB-715[\s\S]*config="):
        import_checkpoint(folder, tmp_path / "model")
    report = import_checkpoint(
        folder,
        tmp_path / "model",
        config=_config(tmp_path / "a.json", inner_group_num=None),
    )
    assert "inner_group_num 1" in "\n".join(
        report.notes
    ) and "--tokenizer" in "\n".join(report.notes)
    path = _config(tmp_path / "b.json", hidden_size=2048, num_attention_heads=32)
    assert "set it to 16" in "\n".join(read_official_config(path)[1])
