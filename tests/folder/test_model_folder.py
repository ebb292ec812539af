"""A folder that we write and transformers reads, and the other way round."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AlbertConfig as TheirConfig
from transformers import AlbertForPreTraining, AlbertModel

from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model, save_model
from litebert.nn import AlbertForPretraining, Batch

SHAPE = AlbertConfig(
    vocab_size=90, embedding_size=16, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48
)
PLANS = [
    {},
    {"num_hidden_groups": 2},
    {"inner_group_num": 2},
    {"num_hidden_groups": 2, "inner_group_num": 2},
    {"num_hidden_groups": 4},
    {"sharing": "attention"},
    {"sharing": "ffn", "inner_group_num": 2},
    {"sharing": "none"},
    {"embedding_size": 32},
    {"embedding_size": 32, "embedding_projection": True},
    {"hidden_act": "gelu"},
    {"hidden_act": "relu"},
]


def _network(changes: dict[str, object]) -> AlbertForPretraining:
    network = AlbertForPretraining(SHAPE.model_copy(update=changes)).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return network


def _padded() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, 90, (3, 12), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 8:] = mask[2, 3:] = 0
    return ids, mask, torch.randint(0, 2, (3, 12), generator=generator)


@torch.no_grad()
def _difference(ours: AlbertForPretraining, theirs: AlbertForPreTraining) -> float:
    ids, mask, segments = _padded()
    batch = Batch.from_padded(ids, mask, segments)
    mine = ours(batch, torch.arange(len(batch.ids)))
    other = theirs.eval()(ids, attention_mask=mask, token_type_ids=segments)
    words = batch.to_padded(mine.masked_lm, width=12) - other.prediction_logits * mask[..., None]
    return max(float(words.abs().max()), float((mine.sentence_order - other.sop_logits).abs().max()))


@pytest.mark.parametrize("changes", PLANS, ids=str)
def test_transformers_computes_what_we_compute(tmp_path: Path, changes: dict[str, object]) -> None:
    network = _network(changes)
    save_model(network, tmp_path)
    theirs, report = AlbertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert _difference(network, theirs) < 1e-5


@pytest.mark.parametrize("changes", PLANS, ids=str)
def test_what_is_written_is_read_bit_for_bit(tmp_path: Path, changes: dict[str, object]) -> None:
    network = _network(changes)
    save_model(network, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.missing == frozenset()
    assert loaded.network.albert.plan == network.albert.plan
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, loaded.network.state_dict()[name]), name


def test_what_transformers_writes_is_read(tmp_path: Path) -> None:
    shape = {"vocab_size": 90, "embedding_size": 16, "hidden_size": 32, "intermediate_size": 48}
    theirs = AlbertForPreTraining(TheirConfig(**shape, num_attention_heads=4, num_hidden_layers=3))
    theirs.save_pretrained(tmp_path)
    assert _difference(load_model(tmp_path).network, theirs) < 1e-5


def test_a_bare_encoder_is_read_and_its_missing_heads_are_named(tmp_path: Path) -> None:
    shape = {"vocab_size": 90, "embedding_size": 16, "hidden_size": 32, "intermediate_size": 48}
    AlbertModel(TheirConfig(**shape, num_attention_heads=4)).save_pretrained(tmp_path)
    missing = load_model(tmp_path).missing
    assert {name.split(".")[0] for name in missing} == {"masked_lm", "sentence_order"}


def test_a_file_holds_each_shared_tensor_once(tmp_path: Path) -> None:
    save_model(_network({}), tmp_path)
    assert len(load_file(tmp_path / "model.safetensors")) == 32


def test_copies_of_a_shared_tensor_that_differ_are_refused(tmp_path: Path) -> None:
    save_model(_network({"sharing": "attention"}), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "albert.encoder.albert_layer_groups.2.albert_layers.0.attention.query.weight"
    save_file({**tensors, name: tensors[name] + 1}, tmp_path / "model.safetensors")
    with pytest.raises(DamagedError, match="LB-605"):
        load_model(tmp_path)


def test_unexpected_tensors_and_wrong_shapes_are_named(tmp_path: Path) -> None:
    save_model(_network({}), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "albert.extra": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(DamagedError, match=r"LB-604[\s\S]*albert\.extra"):
        load_model(tmp_path)
    bad = {**tensors, "albert.pooler.bias": torch.ones(7)}
    save_file(bad, tmp_path / "model.safetensors")
    with pytest.raises(DamagedError, match=r"LB-606.*albert\.pooler\.bias"):
        load_model(tmp_path)


def test_missing_weights_are_one_clear_error(tmp_path: Path) -> None:
    save_model(_network({}), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(LitebertError, match="LB-675"):
        load_model(tmp_path.parent)
    with pytest.raises(LitebertError, match="LB-602"):
        load_model(tmp_path)
