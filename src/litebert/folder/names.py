"""The names of our parameters in Hugging Face's files (AlbertForPreTraining has 32 tensors), and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import AlbertConfig, HeadConfig
from litebert.folder.weights import damaged_model
from litebert.nn import depth_plan
from litebert.nn.heads import PRETRAINING_HEADS


@dataclass(frozen=True)
class TensorNames:
    """The names of the tensors of one family of models on disk."""

    family: str
    encoder: str  # the prefix of the encoder's tensors
    words: str
    predictions: str
    modules: Mapping[str, str]  # theirs by ours
    layer: str  # the prefix of the block of a group and an inner group
    block: Mapping[str, str]  # its parts


_EMBEDDINGS = {
    "albert.embedding.word": "embeddings.word_embeddings",
    "albert.embedding.position": "embeddings.position_embeddings",
    "albert.embedding.segment": "embeddings.token_type_embeddings",
    "albert.embedding.norm": "embeddings.LayerNorm",
}
ALBERT = TensorNames(
    family="Albert",
    encoder="albert.",
    words="albert.embeddings.word_embeddings.weight",
    predictions="predictions",
    modules={
        **{ours: f"albert.{theirs}" for ours, theirs in _EMBEDDINGS.items()},
        "albert.embedding.projection": "albert.encoder.embedding_hidden_mapping_in",
        "albert.pooler": "albert.pooler",
        "albert": "albert",  # the calibration of an eight-bit network
    },
    layer="albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}",
    block={
        "attention.query": "attention.query",
        "attention.key": "attention.key",
        "attention.value": "attention.value",
        "attention.output": "attention.dense",
        "attention.norm": "attention.LayerNorm",
        "feed_forward.intermediate": "ffn",
        "feed_forward.output": "ffn_output",
        "feed_forward.norm": "full_layer_layer_norm",
    },
)
BERT = TensorNames(
    family="Bert",
    encoder="bert.",
    words="bert.embeddings.word_embeddings.weight",
    predictions="cls.predictions",
    modules={**{ours: f"bert.{theirs}" for ours, theirs in _EMBEDDINGS.items()}, "albert.pooler": "bert.pooler.dense"},
    layer="bert.encoder.layer.{group}",
    block={
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "attention.norm": "attention.output.LayerNorm",
        "feed_forward.intermediate": "intermediate.dense",
        "feed_forward.output": "output.dense",
        "feed_forward.norm": "output.LayerNorm",
    },
)
# transformers has no conditional head: these are the official variables (squad_utils.py L1230).
_CONDITIONAL = {
    "head.start": "start_logits.dense",
    "head.end_hidden": "end_logits.dense_0",
    "head.end_norm": "end_logits.LayerNorm",
    "head.end": "end_logits.dense_1",
    "head.answer_hidden": "answer_class.dense_0",
    "head.answer": "answer_class.dense_1",
}
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
_BARE = ("embeddings.", "encoder.", "pooler.")  # tensors of an encoder that was saved alone
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # of transformers, in old files
# Layer norms of files that were converted from TensorFlow, among them bert-base-uncased.
_OLD_NORMS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_BLOCK = re.compile(r"albert\.(attention|feed_forward)\.(\d+)\.(\w+)$")


def groups_on_disk(config: AlbertConfig) -> int:
    """Return the number of layer groups on disk: with partial sharing, one per layer.

    Hugging Face's ALBERT only has groups, so a network that shares attention alone, for example, is written as the
    unshared network that it equals; `sharing` in config.json tells us how to merge it.
    """
    return config.num_hidden_groups if config.sharing == "all" else config.num_hidden_layers


def tensor_names(
    parameter: str, config: AlbertConfig, head: HeadConfig | None = None, layout: TensorNames = ALBERT
) -> list[str]:
    """Return the names on disk of one of our parameters; with partial sharing, several.

    >>> tensor_names("albert.feed_forward.0.output.bias", AlbertConfig())
    ['albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output.bias']
    >>> bert = AlbertConfig(sharing="none", embedding_size=768)
    >>> tensor_names("albert.feed_forward.2.output.bias", bert, layout=BERT)
    ['bert.encoder.layer.2.output.dense.bias']
    """
    module, _, kind = parameter.rpartition(".")
    match = _BLOCK.match(module)
    if module == "head.dense":
        return [f"{head.record.layer if head else 'classifier'}.{kind}"]
    if module.startswith("exits."):  # transformers ignores these: it has one head, the last
        return [f"{module.removesuffix('.dense')}.{kind}"]
    if match is None:
        name, _, part = module.partition(".")
        if name in PRETRAINING_HEADS:  # their records have both names
            return [f"{PRETRAINING_HEADS[name].names[part][layout is not ALBERT]}.{kind}"]
        return [f"{({**layout.modules, **_CONDITIONAL})[module]}.{kind}"]
    places = set()  # the (group, inner group) of every copy on disk
    for index, step in enumerate(depth_plan(config)):
        layer, inner = divmod(index, config.inner_group_num)
        if getattr(step, match[1]) == int(match[2]):
            places.add((layer * groups_on_disk(config) // config.num_hidden_layers, inner))
    suffix = f"{layout.block[f'{match[1]}.{match[3]}']}.{kind}"
    return [f"{layout.layer.format(group=group, inner=inner)}.{suffix}" for group, inner in sorted(places)]


def to_disk(parameters: dict[str, Tensor], config: AlbertConfig, head: HeadConfig | None = None) -> dict[str, Tensor]:
    """Rename our parameters; without a projection of E = H, transformers needs an identity."""
    tensors = {
        name: tensor.detach().clone()
        for parameter, tensor in parameters.items()
        for name in tensor_names(parameter, config, head)
    }
    if not config.projects_embeddings:
        tensors[f"{_PROJECTION}.weight"] = torch.eye(config.hidden_size)
        tensors[f"{_PROJECTION}.bias"] = torch.zeros(config.hidden_size)
    return tensors


def canonical(tensors: dict[str, Tensor], source: Path, layout: TensorNames = ALBERT) -> dict[str, Tensor]:
    """Add the prefix that a bare encoder lacks; drop buffers and tied copies."""
    named = {}
    for name, tensor in tensors.items():
        for old, new in _OLD_NORMS.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        named[layout.encoder + name if name.startswith(_BARE) else name] = tensor
    for buffer in _BUFFERS:
        named.pop(layout.encoder + buffer, None)
    for copy, original in (
        (f"{layout.predictions}.decoder.weight", layout.words),
        (f"{layout.predictions}.decoder.bias", f"{layout.predictions}.bias"),
    ):
        tied = named.pop(copy, None)
        if tied is not None and not are_equal(named.setdefault(original, tied), tied):
            what = f"{source}: the output layer of the masked LM is not tied"
            raise damaged_model("LB-609", what, f"{copy} differs from {original}")
    return named


def with_projection(named: dict[str, Tensor], config: AlbertConfig) -> AlbertConfig:
    """Keep a projection of E = H unless it is the identity, and set `embedding_projection`."""
    if config.embedding_size != config.hidden_size:
        return config
    weight, bias = named.get(f"{_PROJECTION}.weight"), named.get(f"{_PROJECTION}.bias")
    identity = torch.eye(config.hidden_size)
    if weight is not None and bias is not None and not (are_equal(weight, identity) and not bool(bias.any())):
        return config.model_copy(update={"embedding_projection": True})
    named.pop(f"{_PROJECTION}.weight", None)
    named.pop(f"{_PROJECTION}.bias", None)
    return config


def are_equal(one: Tensor, other: Tensor) -> bool:
    """Compare numbers of any dtypes; NaN equals NaN, because another check refuses it."""
    if one.shape != other.shape:
        return False
    one, other = one.float(), other.float()
    return torch.equal(one, other) or torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
