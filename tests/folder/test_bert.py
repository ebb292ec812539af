"""BERT folders of transformers: every head class, equal outputs, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
import transformers as hf
from torch import Tensor

from litebert.config import HEADS
from litebert.errors import LitebertError
from litebert.folder import load_model, save_model
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch

SHAPE = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
TASKS = {
    hf.BertForSequenceClassification: "sequence-classification",
    hf.BertForTokenClassification: "token-classification",
    hf.BertForQuestionAnswering: "question-answering",
    hf.BertForMultipleChoice: "multiple-choice",
}


def _folder(cls: type, path: Path, **changes: object) -> tuple[Path, hf.PreTrainedModel]:
    """Save a random BERT whose every tensor, biases and norms included, says something."""
    model = cls(hf.BertConfig(**(SHAPE | changes))).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(path)
    return path, model


def _padded() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, 90, (4, 12), generator=generator)
    lengths = torch.tensor([12, 5, 9, 1])
    mask = (torch.arange(12) < lengths[:, None]).long()
    segments = ((torch.arange(12) >= 4) & (torch.arange(12) < lengths[:, None])).long()
    return ids, mask, segments


@pytest.mark.parametrize("cls", [hf.BertForPreTraining, hf.BertForMaskedLM])
@torch.inference_mode()
def test_the_pretraining_heads_equal_theirs(tmp_path: Path, cls: type) -> None:
    folder, theirs = _folder(cls, tmp_path)
    ids, mask, segments = _padded()
    expected = theirs(ids, attention_mask=mask, token_type_ids=segments)
    loaded = load_model(folder)
    assert isinstance(loaded.network, AlbertForPretraining)
    if cls is hf.BertForMaskedLM:
        batch = Batch.from_padded(ids, mask, segments)
        hidden = loaded.network.albert(batch)
        words = loaded.network.masked_lm(hidden, loaded.network.albert.embedding.word.weight)
        assert {name.split(".")[0] for name in loaded.missing} == {"albert", "sentence_order"}
        assert not any("next-sentence" in note for note in loaded.notes)
    else:
        everything = torch.arange(int(mask.sum()))
        found = loaded.network(Batch.from_padded(ids, mask, segments), everything)
        words = found.masked_lm
        torch.testing.assert_close(found.sentence_order, expected.seq_relationship_logits, atol=1e-5, rtol=0)
        assert not loaded.missing and "next-sentence" in loaded.notes[0]
    logits = expected.logits if cls is hf.BertForMaskedLM else expected.prediction_logits
    torch.testing.assert_close(words, logits[mask.bool()], atol=1e-5, rtol=0)


@pytest.mark.parametrize("cls", TASKS)
@torch.inference_mode()
def test_every_task_head_equals_theirs(tmp_path: Path, cls: type) -> None:
    kind = TASKS[cls]
    folder, theirs = _folder(cls, tmp_path, **({"num_labels": 3} if HEADS[kind].has_labels else {}))
    ids, mask, segments = _padded()
    inputs = {"attention_mask": mask, "token_type_ids": segments}
    network = load_model(folder, for_inference=True).network
    assert isinstance(network, AlbertForTask) and network.head_config.kind == kind
    found = network(Batch.from_padded(ids, mask, segments))
    if kind == "multiple-choice":
        rows = {name: each.view(2, 2, 12) for name, each in inputs.items()}
        expected = theirs(ids.view(2, 2, 12), **rows).logits.view(-1, 1)
    elif kind == "question-answering":
        logits = theirs(ids, **inputs)
        expected = torch.stack([logits.start_logits, logits.end_logits], dim=-1)[mask.bool()]
    else:
        logits = theirs(ids, **inputs).logits
        expected = logits if network.head_config.is_pooled else logits[mask.bool()]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_saved_again_it_is_an_albert_without_sharing_that_transformers_opens(tmp_path: Path) -> None:
    folder, theirs = _folder(hf.BertForMaskedLM, tmp_path / "bert")
    save_model(load_model(folder).network, tmp_path / "albert")
    ids, mask, segments = _padded()
    found = hf.AlbertForMaskedLM.from_pretrained(tmp_path / "albert").eval()
    inputs = {"attention_mask": mask, "token_type_ids": segments}
    expected = theirs(ids, **inputs).logits[mask.bool()]
    torch.testing.assert_close(found(ids, **inputs).logits[mask.bool()], expected, atol=1e-5, rtol=0)
    assert load_model(tmp_path / "albert").network.config.sharing == "none"


def test_names_of_tensorflow_and_dropouts_are_read(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder, _ = _folder(hf.BertModel, tmp_path, hidden_dropout_prob=0.3)
    file = folder / "model.safetensors"
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = load_file(file)
    expected = load_model(folder).network.state_dict()
    for new, name in old.items():
        tensors = {key.replace(new, name): tensor for key, tensor in tensors.items()}
    save_file(tensors, file)
    found = load_model(folder).network
    assert found.config.hidden_dropout_prob == found.config.classifier_dropout_prob == 0.3
    for name, tensor in found.state_dict().items():
        if not tensor.is_meta:
            assert torch.equal(tensor, expected[name])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"position_embedding_type": "relative_key"}, "LB-671"),
        ({"is_decoder": True}, "LB-671"),
        ({"model_type": "roberta"}, "LB-600"),
        ({"num_hidden_layers": True}, "LB-601"),
    ],
)
def test_other_networks_are_refused(tmp_path: Path, changes: dict[str, object], code: str) -> None:
    folder, _ = _folder(hf.BertModel, tmp_path)
    path = folder / "config.json"
    table = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in table.items() if value is not None}))
    with pytest.raises(LitebertError) as caught:
        load_model(folder)
    assert caught.value.code == code


def test_a_missing_layer_is_named_as_the_file_would_name_it(tmp_path: Path) -> None:
    folder, _ = _folder(hf.BertModel, tmp_path)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 4}))
    with pytest.raises(LitebertError, match=r"LB-660[\s\S]*no bert.encoder.layer.3."):
        load_model(folder)
