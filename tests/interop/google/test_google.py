"""Checkpoints of real TensorFlow (tests/tensorflow/checkpoints.py) become model folders
bit for bit, and back.
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
from torch import Tensor

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, read_folder, read_head, write_folder
from litebert.interop.bundle import read_bundle, read_table, write_bundle
from litebert.interop.google import (
    export_checkpoint,
    import_checkpoint,
    read_official_config,
)
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.optim import AdamW, load_state_tensors, parameter_groups, state_tensors
from litebert.tokenizer import Tokenizer, train_tokenizer

WRITTEN = Path(__file__).parent / "fixtures"
BEST = "model.ckpt-best"
SHAPE, _ = read_official_config(WRITTEN / "pretraining" / "albert_config.json")


def _numbers(name: str) -> Mapping[str, NDArray[np.float32]]:
    """Return what TensorFlow wrote into a checkpoint."""
    with np.load(WRITTEN / name / "expected.npz", allow_pickle=False) as table:
        return {key.removeprefix("module/"): value for key, value in table.items()}


def _variables(prefix: Path) -> dict[str, Tensor]:
    bundle = read_bundle(prefix)
    return {name: bundle.read(name) for name in bundle.entries}


def _saved(folder: Path, head: HeadConfig | None = None, **changes: object) -> Path:
    config = SHAPE.model_copy(update=changes)
    write_folder(
        ModelFolder(
            AlbertForTask(config, head) if head else AlbertForPretraining(config)
        ),
        folder,
    )
    return folder


def _config(path: Path, **changes: object) -> Path:
    """Write a changed albert_config.json; a value of None removes a name."""
    table = (
        json.loads((WRITTEN / "pretraining" / "albert_config.json").read_text())
        | changes
    )
    path.write_text(
        json.dumps({name: each for name, each in table.items() if each is not None})
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
def test_every_variable_is_imported_under_its_name_and_exported_bit_for_bit(
    tmp_path: Path, name: str
) -> None:
    report = import_checkpoint(
        WRITTEN / name,
        tmp_path / "model",
        head="multiple-choice" if name[0] == "o" else None,
    )
    found = load_file(tmp_path / "model" / "model.safetensors")
    not_kept = ("global_step", "/adam_m", "/adam_v")
    theirs = {
        key: value
        for key, value in _numbers(name).items()
        if not key.endswith(not_kept)
    }
    if name == "equal_sizes":  # transformers needs an identity where E = H
        mapping = "albert.encoder.embedding_hidden_mapping_in"
        assert (
            np.array_equal(found.pop(f"{mapping}.weight"), np.eye(16))
            and not found.pop(f"{mapping}.bias").any()
        )
    assert {_spelt(ours) for ours in found} == theirs.keys()
    for ours, values in found.items():
        variable = _spelt(ours)
        assert np.array_equal(
            values,
            theirs[variable].T if variable.endswith("/kernel") else theirs[variable],
        ), ours
    assert report.unused == ()
    loaded = read_folder(tmp_path / "model")
    assert loaded.unused == (
        ("albert.pooler.bias", "albert.pooler.weight") if "spans" in name else ()
    )
    assert loaded.missing == set(report.missing)
    if name == "hub":
        assert loaded.missing == {
            "sentence_order.classifier.weight",
            "sentence_order.classifier.bias",
        }
        assert report.architecture == "AlbertForMaskedLM"
    report = export_checkpoint(tmp_path / "model", tmp_path / "out")
    back = _variables(tmp_path / "out" / BEST)
    assert (
        report.num_variables == len(back)
        and back.pop("global_step") == 0
        and back.keys() == theirs.keys()
    )
    assert all(np.array_equal(back[key], value) for key, value in theirs.items())


def test_exported_bytes_and_configuration_are_those_of_google(tmp_path: Path) -> None:
    for name in ("equal_sizes", "groups_bfloat16"):
        import_checkpoint(WRITTEN / name, tmp_path / name / "model")
        export_checkpoint(tmp_path / name / "model", tmp_path / name)
    theirs = WRITTEN / "equal_sizes"
    ours = tmp_path / "equal_sizes"
    data = f"{BEST}.data-00000-of-00001"
    assert (ours / data).read_bytes() == (theirs / data).read_bytes()
    tables = [
        list(read_table((at / f"{BEST}.index").read_bytes())) for at in (theirs, ours)
    ]
    assert tables[0] == tables[1]
    (ours / f"{BEST}.index").unlink()  # as an export that was killed leaves it
    export_checkpoint(ours / "model", ours)
    (ours / f"{BEST}.index").unlink()
    (ours / "checkpoint").write_text("of another training")
    with pytest.raises(LitebertError, match=r"LB-619: .*checkpoint already"):
        export_checkpoint(ours / "model", ours)
    table = json.loads((WRITTEN / "groups_bfloat16" / "albert_config.json").read_text())
    del table["layers_to_keep"]
    text = (tmp_path / "groups_bfloat16" / "albert_config.json").read_text()
    assert text == json.dumps(table, indent=2, sort_keys=True) + "\n"


def test_every_data_type_is_read_and_slices_are_refused() -> None:
    bundle = read_bundle(WRITTEN / "kinds" / BEST)
    for kind in ("float16", "float32", "float64", "bfloat16", "int32", "int64"):
        assert bundle.dtype(kind) == getattr(torch, kind)
        assert bundle.read(kind).tolist() == [[-3, -2, -1], [0, 1, 2]]
    bundle = read_bundle(WRITTEN / "sliced" / "model.ckpt")
    with pytest.raises(LitebertError, match=r"LB-706.*word_embeddings"):
        bundle.read("bert/embeddings/word_embeddings")
    assert bundle.read("whole").tolist() == [0, 0]


# --- the optimizer --------------------------------------------------------------------


def test_the_optimizer_is_kept_on_request_and_missing_moments_are_zeros(
    tmp_path: Path,
) -> None:
    theirs = _numbers("pretraining")
    never = (
        "bert/pooler/dense/kernel/adam_m",
        "bert/pooler/dense/kernel/adam_v",
        "global_step",
    )
    some = {
        name: torch.from_numpy(each)
        for name, each in theirs.items()
        if name not in never
    }
    # a slot of another optimizer, another variable
    strangers = ("bert/pooler/dense/bias/average", "stranger")
    write_bundle(tmp_path / "x.ckpt", some | dict.fromkeys(strangers, torch.zeros(3)))
    config = WRITTEN / "pretraining" / "albert_config.json"
    for path, step, left in (
        (WRITTEN / "pretraining", 7, ()),
        (tmp_path / "x.ckpt", 0, strangers),
    ):
        model = tmp_path / str(step)
        report = import_checkpoint(path, model, config=config, has_optimizer=True)
        assert (report.optimizer_step, report.unused) == (step, left)
        assert f"3,050 parameters\noptimizer: after {step} steps" in str(report)
        assert json.loads((model / "state.json").read_text()) == {"step": step}
        kept = {
            name: torch.from_numpy(each)
            for name, each in load_file(model / "optimizer.safetensors").items()
        }
        assert kept["albert.pooler.bias/adam_v"].any()
        assert bool(kept["albert.pooler.weight/adam_v"].any()) == (step == 7)
        network = read_folder(model).network
        optimizer = AdamW(
            parameter_groups(network.named_parameters(), weight_decay=0.01)
        )
        load_state_tensors(optimizer, kept)
        state = state_tensors(optimizer)
        kernel = f"{THEIR_BLOCK.format(0, 0)}ffn_1/intermediate/dense/kernel"
        for slot in ("adam_m", "adam_v"):
            ours = state[f"albert.feed_forward.0.intermediate.weight/{slot}"]
            assert np.array_equal(ours, theirs[f"{kernel}/{slot}"].T)
            assert np.array_equal(
                state[f"masked_lm.bias/{slot}"],
                theirs[f"cls/predictions/output_bias/{slot}"],
            )


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
    ("labels", {"has_optimizer": True}, "LB-724"),
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
    *(("pretraining", {"config": each}, "LB-60[46]") for each in FOREIGN),
    ("pretraining", {"config": {"num_hidden_groups": 2}}, "LB-721"),
    *(("pretraining", {"config": each}, "LB-601") for each in IMPOSSIBLE),
    *(
        ("pretraining", {"config": {"hidden_act": each}}, r"LB-601[\s\S]*hidden_act")
        for each in ("swish", 3)
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


# --- what is written for Google's code ------------------------------------------------


def test_the_vocabulary_is_copied_or_made_from_tokenizer_json(
    vocabulary: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    out = tmp_path / "first"
    text = "A cat, or 3,000 of them (é)"
    import_checkpoint(WRITTEN / "labels", model, tokenizer=vocabulary)
    report = export_checkpoint(model, out / "model.ckpt-12")
    assert (
        str(report).splitlines()[0]
        == f"{out / 'model.ckpt-12'}: 28 variables, 2,875 parameters in float32"
    )
    assert (out / "30k-clean.model").read_bytes() == vocabulary.read_bytes()
    assert (
        (out / "checkpoint")
        .read_text()
        .startswith('model_checkpoint_path: "model.ckpt-12"\n')
    )
    assert {path.name for path in out.iterdir()} == set(report.files)
    assert import_checkpoint(out, tmp_path / "again").notes == ()
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    with pytest.raises(LitebertError, match="LB-619"):
        export_checkpoint(model, out / "other.ckpt")
    assert before == {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    (model / "spiece.model").unlink()
    assert export_checkpoint(model, tmp_path / "out").notes == ()
    found = Tokenizer.load(tmp_path / "out" / "30k-clean.model")
    assert found.encode_ids([text]) == Tokenizer.load(vocabulary).encode_ids([text])
    (model / "tokenizer_config.json").write_text(
        '{"do_lower_case": false, "keep_accents": true}'
    )
    assert re.search(
        "do_lower_case=False.*accents",
        str(export_checkpoint(model, tmp_path / "cased").notes),
    )
    (model / "tokenizer.json").unlink()
    (note,) = export_checkpoint(model, tmp_path / "bare").notes
    assert note.startswith("Google's code also needs the vocabulary")


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_partial_sharing_becomes_the_unshared_layers_it_equals(
    tmp_path: Path, sharing: str
) -> None:
    model = _saved(tmp_path / "model", sharing=sharing, inner_group_num=2)
    report = export_checkpoint(model, tmp_path / "out")
    import_checkpoint(tmp_path / "out", tmp_path / "again")
    unshared = read_folder(tmp_path / "again").network
    shared = read_folder(model).network
    assert unshared.config.num_hidden_groups == 4 and any(
        sharing in note for note in report.notes
    )
    for step, other in zip(shared.albert.plan, unshared.albert.plan, strict=True):
        for kind in ("attention", "feed_forward"):
            ours = getattr(shared.albert, kind)[getattr(step, kind)].state_dict()
            theirs = getattr(unshared.albert, kind)[getattr(other, kind)].state_dict()
            assert all(torch.equal(ours[key], value) for key, value in theirs.items())


def test_differences_from_googles_code_are_noted_and_unsupported_models_refused(
    tmp_path: Path,
) -> None:
    span = HeadConfig(kind="question-answering")
    window = {"attention": "local", "attention_window": 2}
    for head, changes, said in (
        (None, {"hidden_act": "gelu"}, "tanh form"),
        (None, {"layer_norm_eps": 1e-5}, "1e-12"),
        (span, {}, "pooler"),
    ):
        report = export_checkpoint(
            _saved(tmp_path / said, head, **changes), tmp_path / f"{said} out"
        )
        assert any(said in note for note in report.notes)
    # Google's graph has a pooler under every head
    found = _variables(tmp_path / "pooler out" / BEST)
    assert not found["bert/pooler/dense/kernel"].any() and found[
        "bert/pooler/dense/bias"
    ].shape == (16,)
    projection = {"embedding_size": 16, "embedding_projection": True}
    deep = {"sharing": "none", "num_hidden_layers": 22}
    for changes, said in (
        (projection, "projection"),
        (window, "attention local"),
        (deep, "22 groups of 22 layers"),
    ):
        with pytest.raises(LitebertError, match=rf"LB-709[\s\S]*{said}"):
            export_checkpoint(_saved(tmp_path / said, **changes), tmp_path / "out")
        assert not (tmp_path / "out").exists()
