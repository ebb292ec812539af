"""PyTorch ALBERTs of before transformers: other names, and one other way to add positions."""

import json
import re
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.interop.huggingface import import_model
from litebert.nn import Batch

SHAPE = {
    "vocab_size": 36,
    "embedding_size": 16,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "max_position_embeddings": 40,
    "hidden_act": "gelu_new",
}
IDS = torch.tensor([[2, 20, 3, 8, 9, 10, 3]])
LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0"


def _written(folder: Path, tensors: dict[str, Tensor], **more: object) -> Path:
    """Write a folder as those scripts did: with a stream of torch before 1.6."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**SHAPE, **more}))
    path = folder / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=False)
    return folder


def _older_name(name: str) -> str:
    """Say a name of transformers in those of albert_pytorch's English models."""
    renamings = {
        f"{LAYER}.attention.LayerNorm": "encoder.transformer.group.0.inner_group.0.LayerNorm",
        f"{LAYER}.attention.dense": "encoder.transformer.group.0.inner_group.0.attention.output.dense",
        f"{LAYER}.attention": "encoder.transformer.group.0.inner_group.0.attention.self",
        f"{LAYER}.full_layer_layer_norm": "encoder.transformer.group.0.inner_group.0.LayerNorm_1",
        f"{LAYER}.ffn_output": "encoder.transformer.group.0.inner_group.0.ffn.intermediate.output.dense",
        f"{LAYER}.ffn": "encoder.transformer.group.0.inner_group.0.ffn.intermediate.dense",
        "albert.pooler": "pooler.dense",
        "albert.": "",
        "predictions.dense": "cls.predictions.transform.dense",
        "predictions.LayerNorm": "cls.predictions.transform.LayerNorm",
        "predictions.": "cls.predictions.",
        "sop_classifier.classifier": "cls.seq_relationship",
    }
    old = next(start for start in renamings if name.startswith(start))
    body = renamings[old] + name.removeprefix(old)
    return body if body.startswith("cls.") else f"PREFIX{body}"


@torch.no_grad()
@pytest.mark.parametrize("prefix", ["bert.", "bert.albert.", "albert.", "", "module.bert."])
def test_names_of_before_transformers_are_understood(tmp_path: Path, prefix: str) -> None:
    model = transformers.AlbertForPreTraining(transformers.AlbertConfig(**SHAPE)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    wrapper = "module." if prefix.startswith("module.") else ""
    older = {
        re.sub("^cls", f"{wrapper}cls", _older_name(name).replace("PREFIX", prefix)): tensor
        for name, tensor in model.state_dict().items()
        if name != "predictions.decoder.bias"
    }
    source = _written(tmp_path / "in", older, net_structure_type=0)
    report = import_model(source, tmp_path / "out", legacy_pickle=True)
    assert (report.missing, report.unused) == ((), ())
    reread = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "out").eval()
    for name, tensor in model.state_dict().items():
        assert torch.equal(reread.state_dict()[name], tensor), name


class _AlbertZh(nn.Module):
    """The older network of albert_zh: positions and segments are added at hidden width."""

    def __init__(self) -> None:
        super().__init__()
        vocab, embedding, hidden, inner = 36, 16, 32, 48
        linears = {
            "encoder.layer_shared.attention.self.query": (hidden, hidden),
            "encoder.layer_shared.attention.self.key": (hidden, hidden),
            "encoder.layer_shared.attention.self.value": (hidden, hidden),
            "encoder.layer_shared.attention.output.dense": (hidden, hidden),
            "encoder.layer_shared.intermediate.dense": (hidden, inner),
            "encoder.layer_shared.output.dense": (inner, hidden),
            "pooler.dense": (hidden, hidden),
            "cls.predictions.transform.dense": (hidden, hidden),
        }
        norms = [
            "embeddings.LayerNorm",
            "encoder.layer_shared.attention.output.LayerNorm",
            "encoder.layer_shared.output.LayerNorm",
            "cls.predictions.transform.LayerNorm",
        ]
        modules: dict[str, nn.Module] = {n: nn.Linear(*size) for n, size in linears.items()}
        modules |= {name: nn.LayerNorm(hidden, eps=1e-12) for name in norms}
        modules["embeddings.word_embeddings"] = nn.Embedding(vocab, embedding)
        modules["embeddings.word_embeddings_2"] = nn.Linear(embedding, hidden, bias=False)
        modules["embeddings.position_embeddings"] = nn.Embedding(40, hidden)
        modules["embeddings.token_type_embeddings"] = nn.Embedding(2, hidden)
        self.parts = nn.ModuleDict({name.replace(".", "/"): m for name, m in modules.items()})
        self.bias = nn.Parameter(torch.zeros(vocab))

    def part(self, name: str, value: Tensor) -> Tensor:
        return self.parts[name.replace(".", "/")](value)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors under the names of the file; the output layers are tied."""
        named = {k.removeprefix("parts.").replace("/", "."): t for k, t in self.named_parameters()}
        named["cls.predictions.bias"] = named.pop("bias")
        named["cls.predictions.decoder.weight"] = named["embeddings.word_embeddings.weight"]
        to_hidden = named["embeddings.word_embeddings_2.weight"]
        named["cls.predictions.project_layer.weight"] = to_hidden.t()
        return {k if k.startswith("cls.") else f"bert.{k}": t for k, t in named.items()}

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden states and logits; no padding."""
        words = self.part("embeddings.word_embeddings_2", self.part("embeddings.word_embeddings", ids))
        places = self.part("embeddings.position_embeddings", torch.arange(ids.shape[1])[None])
        x = words + places + self.part("embeddings.token_type_embeddings", segments)
        x = self.part("embeddings.LayerNorm", x)
        layer = "encoder.layer_shared"
        for _ in range(3):
            q, k, v = (
                self.part(f"{layer}.attention.self.{n}", x).unflatten(-1, (4, 8)).transpose(1, 2)
                for n in ("query", "key", "value")
            )
            mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            y = self.part(f"{layer}.attention.output.dense", mixed)
            x = self.part(f"{layer}.attention.output.LayerNorm", x + y)
            y = nn.functional.gelu(self.part(f"{layer}.intermediate.dense", x), approximate="tanh")
            x = self.part(f"{layer}.output.LayerNorm", x + self.part(f"{layer}.output.dense", y))
        t = self.part("cls.predictions.transform.dense", x)
        t = nn.functional.gelu(t, approximate="tanh")
        t = self.part("cls.predictions.transform.LayerNorm", t)
        t = t @ self.parts["embeddings/word_embeddings_2"].weight
        return x, t @ self.parts["embeddings/word_embeddings"].weight.T + self.bias


@torch.no_grad()
def test_the_older_network_of_albert_zh_is_the_same_function_with_wide_embeddings(tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = _AlbertZh().eval()
    for parameter in network.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    source = _written(tmp_path / "in", network.state(), ln_type="postln", directionality="bidi")
    report = import_model(source, tmp_path / "out", legacy_pickle=True)
    assert report.unused == ()
    segments = (IDS > 8).long()
    hidden, logits = network(IDS, segments)
    theirs = transformers.AlbertForMaskedLM.from_pretrained(tmp_path / "out").eval()
    assert torch.allclose(theirs(IDS, token_type_ids=segments).logits, logits, atol=1e-5)
    ours = load_model(tmp_path / "out").network.albert
    batch = Batch.from_padded(IDS, torch.ones_like(IDS), segments)
    assert torch.allclose(ours(batch), hidden[0], atol=1e-5)


def test_layer_norms_before_the_sub_layers_are_refused(tmp_path: Path) -> None:
    source = _written(tmp_path / "in", _AlbertZh().state(), ln_type="preln")
    with pytest.raises(LitebertError, match="LB-740"):
        import_model(source, tmp_path / "out", legacy_pickle=True)
