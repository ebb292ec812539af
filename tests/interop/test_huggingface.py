"""Folders of transformers of any year give a clean folder of ours (classes, bit for bit: tests/contract)."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from litebert.cli import run
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import load_model, read_config
from litebert.folder.config import doubts
from litebert.interop.huggingface import import_model
from litebert.nn import Batch
from litebert.tokenizer import Tokenizer, train_tokenizer

from .transformers_models import random_model

IDS = torch.tensor([[2, 7, 9, 3, 30, 3, 0], [2, 20, 3, 8, 9, 10, 3]])


def _theirs(name: str, folder: Path, **changes: object) -> nn.Module:
    """Save a small model as transformers saves it, all weights random."""
    model = random_model(name, **({"vocab_size": 36, "max_position_embeddings": 40} | changes))
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def _outputs(model: nn.Module) -> list[Tensor]:
    outputs = model(IDS, attention_mask=(IDS > 0).long(), token_type_ids=(IDS > 8).long())
    return [value for value in outputs.values() if isinstance(value, Tensor)]


def _same(model: nn.Module, output: Path) -> bool:
    """Whether a folder has all of a model's weights for transformers, and gives its outputs."""
    other, report = type(model).from_pretrained(output, output_loading_info=True)
    pairs = zip(_outputs(model), _outputs(other.eval()), strict=True)
    return not any(report.values()) and all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


@pytest.mark.parametrize(("name", "is_archive"), [("AlbertModel", True), ("AlbertForPreTraining", False)])
def test_pickled_weights_are_read_when_asked_for_and_shards_always(tmp_path: Path, name: str, is_archive: bool) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    model = _theirs(name, source)
    (source / "model.safetensors").unlink()
    torch.save(model.state_dict(), source / "pytorch_model.bin", _use_new_zipfile_serialization=is_archive)
    with pytest.raises(LitebertError, match=r"LB-742[\s\S]*programs[\s\S]*nothing in it is run[\s\S]*--legacy-pickle$"):
        import_model(source, output)
    assert not output.exists()
    import_model(source, output, legacy_pickle=True)
    assert _same(model, output)
    model.save_pretrained(tmp_path / "shards", max_shard_size="9KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    import_model(tmp_path / "shards", tmp_path / "one")
    assert _same(model, tmp_path / "one")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(tmp_path: Path, dtype: torch.dtype) -> None:
    _theirs("AlbertForMaskedLM", tmp_path / "in").to(dtype).save_pretrained(tmp_path / "in")
    import_model(tmp_path / "in", tmp_path / "out")
    half, wide = (load_file(tmp_path / name / "model.safetensors") for name in ("in", "out"))
    assert {t.dtype for t in half.values()} == {dtype} and {t.dtype for t in wide.values()} == {torch.float32}
    assert all(torch.equal(wide[name], tensor.float()) for name, tensor in half.items())


def test_a_file_of_the_hub_lacks_the_sentence_order_head_and_says_so(tmp_path: Path) -> None:
    model = _theirs("AlbertForPreTraining", tmp_path / "in", hidden_act="gelu")
    path = tmp_path / "in/model.safetensors"
    tensors = {n: t for n, t in load_file(path).items() if not n.startswith("sop_classifier")}
    save_file(tensors | {"lm.extra": torch.ones(1)}, path, metadata={"format": "pt"})
    report = import_model(tmp_path / "in", tmp_path / "out")
    assert report.architecture == "AlbertForMaskedLM"
    assert report.missing == ("sentence_order.classifier.bias", "sentence_order.classifier.weight")
    assert report.unused == ("lm.extra",)
    assert "no sentence-order head" in report.notes[0] and "erf" in report.notes[1]
    ours = load_model(tmp_path / "out").network
    batch = Batch.from_padded(IDS, (IDS > 0).long(), (IDS > 8).long())
    logits = batch.to_padded(ours.masked_lm(ours.albert(batch), ours.albert.embedding.word.weight))
    assert torch.allclose(logits, _outputs(model)[0] * (IDS > 0)[..., None], atol=1e-4)


def test_settings_that_are_known_to_be_wrong_are_overruled(tmp_path: Path) -> None:
    _theirs("AlbertModel", tmp_path / "in", hidden_act="gelu")
    chosen = import_model(tmp_path / "in", tmp_path / "kept", activation="gelu")
    assert not any("gelu" in note for note in chosen.notes)
    import_model(tmp_path / "in", tmp_path / "out", activation="gelu_new", heads=8)
    config = read_config(tmp_path / "out")
    assert (config.hidden_act, config.num_attention_heads) == ("gelu_new", 8)
    with pytest.raises(LitebertError, match=r"LB-601[\s\S]*num_attention_heads"):
        import_model(tmp_path / "in", tmp_path / "other", heads=7)
    assert doubts(AlbertConfig()) == {}
    xlarge = doubts(AlbertConfig(hidden_size=2048, num_attention_heads=32, hidden_act="gelu"))
    assert "--activation" in xlarge["hidden_act"] and "--heads 16" in xlarge["num_attention_heads"]


@pytest.mark.parametrize("is_bare", [True, False])
def test_a_vocabulary_or_a_pipeline_becomes_a_complete_folder(tmp_path: Path, is_bare: bool) -> None:
    _theirs("AlbertModel", tmp_path / "in", vocab_size=36 if is_bare else 30)
    lines = ["the cat sat on the mat", "a dog ran after the cat"] * 9
    made = Tokenizer.from_model(train_tokenizer(lines, vocab_size=30))
    made.save(tmp_path / "made")
    if is_bare:
        shutil.copyfile(tmp_path / "made/spiece.model", tmp_path / "in/spiece.model")
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
