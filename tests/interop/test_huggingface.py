"""Folders of transformers of any year give a clean folder of ours (classes, bit for bit: tests/contract)."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from litebert.cli import run
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import read_config
from litebert.folder.config import doubts
from litebert.interop.huggingface import import_model
from litebert.tokenizer import Tokenizer, train_tokenizer

from .transformers_models import random_model


def _theirs(name: str, folder: Path, **changes: object) -> transformers.PreTrainedModel:
    """Save a small model as transformers saves it, all weights random."""
    model = random_model(name, **({"vocab_size": 36, "max_position_embeddings": 40} | changes))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["archive", "stream", "shards", "float16", "bfloat16"])
def test_weights_of_every_kind_are_one_file_of_float32(tmp_path: Path, kind: str) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    model = _theirs("AlbertForPreTraining", source)
    if kind.startswith(("float", "bfloat")):
        model.to(getattr(torch, kind)).save_pretrained(source)
    expected = {name: tensor.float() for name, tensor in load_file(source / "model.safetensors").items()}
    if kind == "shards":
        model.save_pretrained(source, max_shard_size="9KB")
        assert len(list(source.glob("*.safetensors"))) > 1
    elif kind in ("archive", "stream"):
        (source / "model.safetensors").unlink()
        is_archive = kind == "archive"
        torch.save(model.state_dict(), source / "pytorch_model.bin", _use_new_zipfile_serialization=is_archive)
        with pytest.raises(LitebertError, match=r"LB-742[\s\S]*programs[\s\S]*nothing in it is run[\s\S]*-pickle$"):
            import_model(source, output)
        assert not output.exists()
    import_model(source, output, legacy_pickle=True)
    found = load_file(output / "model.safetensors")
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_file_of_the_hub_lacks_the_sentence_order_head_and_says_so(tmp_path: Path) -> None:
    _theirs("AlbertForPreTraining", tmp_path / "in", hidden_act="gelu")
    path = tmp_path / "in/model.safetensors"
    tensors = {n: t for n, t in load_file(path).items() if not n.startswith("sop_classifier")}
    save_file(tensors | {"lm.extra": torch.ones(1)}, path, metadata={"format": "pt"})
    report = import_model(tmp_path / "in", tmp_path / "out")
    assert report.architecture == "AlbertForMaskedLM"
    assert report.missing == ("sentence_order.classifier.bias", "sentence_order.classifier.weight")
    assert report.unused == ("lm.extra",)
    assert "no sentence-order head" in report.notes[0] and "erf" in report.notes[1]


def test_settings_that_are_known_to_be_wrong_are_overruled(tmp_path: Path) -> None:
    _theirs("AlbertModel", tmp_path / "in", hidden_act="gelu")
    chosen = import_model(tmp_path / "in", tmp_path / "kept", activation="gelu")
    assert not any("gelu" in note for note in chosen.notes)
    import_model(tmp_path / "in", tmp_path / "out", activation="gelu_new")
    assert read_config(tmp_path / "out").hidden_act == "gelu_new"
    xlarge = doubts(AlbertConfig(hidden_size=2048, num_attention_heads=32, hidden_act="gelu"))
    assert "--activation" in xlarge["hidden_act"] and "set it to 16" in xlarge["num_attention_heads"]
    assert doubts(AlbertConfig()) == {}


@pytest.mark.parametrize("is_bare", [True, False])
def test_a_vocabulary_or_a_pipeline_becomes_a_complete_folder(tmp_path: Path, is_bare: bool) -> None:
    _theirs("AlbertModel", tmp_path / "in", vocab_size=36 if is_bare else 30)
    lines = ["the cat sat on the mat", "a dog ran after the cat"] * 9
    made = Tokenizer.from_model(train_tokenizer(lines, vocab_size=30))
    made.save(tmp_path / "made")
    if is_bare:
        shutil.copy(tmp_path / "made/spiece.model", tmp_path / "in")
    else:
        transformers.AlbertTokenizer.from_pretrained(tmp_path / "made").save_pretrained(tmp_path / "in")
        assert not (tmp_path / "in/spiece.model").exists()
    report = import_model(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out/spiece.model").is_file()
    ours, theirs = Tokenizer.load(tmp_path / "out"), transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (ours.hash == made.hash or not is_bare) and ours.encode_ids(lines) == made.encode_ids(lines)
    assert theirs("a cat", "the dog")["input_ids"] == ours.encode("a cat", "the dog").ids
    assert theirs.model_max_length == 40
    assert ("the tokenizer has 30 pieces, the network 36" in report.notes) == is_bare


def test_the_command_says_what_is_missing_and_leaves_nothing_of_a_damaged_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _theirs("AlbertForMaskedLM", tmp_path / "in")
    words = ["import", "huggingface", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    (tmp_path / "in/tokenizer.json").write_text('{"model": ')
    assert run(words) == 3 and not (tmp_path / "out").exists()
    (tmp_path / "in/tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    capsys.readouterr()
    assert run([*words, "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["architecture"] == "AlbertForMaskedLM"
    assert "no pooler" in shown.err and "a kind that ALBERT does not use: add spiece.model" in shown.err
    assert run(words) == 1 and capsys.readouterr().err.startswith("LB-619")
