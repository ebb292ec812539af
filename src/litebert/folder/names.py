"""The names of our parameters in other formats: transformers' ALBERT and BERT, and
Google's checkpoints.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import DamagedError
from litebert.nn import depth_plan
from litebert.plugins import PRETRAINING_HEADS


@dataclass(frozen=True)
class TensorNames:
    """The names of one family of models on disk."""

    family: str
    column: int  # in the table of names
    encoder: str  # the prefix of the encoder's tensors
    layer: str  # the block of a group and an inner group
    predictions: str  # the masked-LM head

    def module(self, part: str) -> str:
        """Return the name of one of our modules, without prefixes."""
        if part in _EVERYWHERE:
            return _EVERYWHERE[part]
        return _BY_FAMILY[part][self.column]


ALBERT = TensorNames(
    "Albert",
    0,
    "albert.",
    "encoder.albert_layer_groups.{group}.albert_layers.{inner}.",
    "predictions",
)
BERT = TensorNames("Bert", 1, "bert.", "encoder.layer.{group}.", "cls.predictions")
# A layout like the others, so that groups, inner groups and partial sharing work the
# same there (modeling.py).
GOOGLE = TensorNames(
    "Albert",
    2,
    "bert/",
    "encoder.transformer.group_{group}.inner_group_{inner}.",
    "cls.predictions",
)

# What our modules are called, with `encoder` before it, and `layer` in a block.
_EVERYWHERE = {
    "embedding.word": "embeddings.word_embeddings",
    "embedding.position": "embeddings.position_embeddings",
    "embedding.segment": "embeddings.token_type_embeddings",
    "embedding.norm": "embeddings.LayerNorm",
    "embedding.projection": "encoder.embedding_hidden_mapping_in",
}
# in ALBERT, in BERT, in Google's checkpoints
_BY_FAMILY = {
    "pooler": ("pooler", "pooler.dense", "pooler.dense"),
    "attention.query": (
        "attention.query",
        "attention.self.query",
        "attention_1.self.query",
    ),
    "attention.key": ("attention.key", "attention.self.key", "attention_1.self.key"),
    "attention.value": (
        "attention.value",
        "attention.self.value",
        "attention_1.self.value",
    ),
    "attention.output": (
        "attention.dense",
        "attention.output.dense",
        "attention_1.output.dense",
    ),
    "attention.norm": (
        "attention.LayerNorm",
        "attention.output.LayerNorm",
        "LayerNorm",
    ),
    "feed_forward.intermediate": (
        "ffn",
        "intermediate.dense",
        "ffn_1.intermediate.dense",
    ),
    "feed_forward.output": (
        "ffn_output",
        "output.dense",
        "ffn_1.intermediate.output.dense",
    ),
    "feed_forward.norm": ("full_layer_layer_norm", "output.LayerNorm", "LayerNorm_1"),
}
_BLOCK = re.compile(r"albert\.(attention|feed_forward)\.(\d+)\.(\w+)$")
# Google's scopes whose variables are output_weights and output_bias
_OUTPUTS = ("", "cls/squad", "cls/seq_relationship", "cls/predictions")
# Layer norms in files that were converted from TensorFlow, such as bert-base-uncased.
_OLD_NORM = re.compile(r"LayerNorm\.(gamma|beta)$")

_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
PROJECTION = (f"{_PROJECTION}.weight", f"{_PROJECTION}.bias")
_UNTIED = (
    "the output layer of this masked LM is not tied to its word embeddings, as ALBERT's"
    " is: the head is left out, so the model has no fill() and no score()"
)


def damaged_model(
    code: str, what: str, received: object, expected: str | None = None
) -> DamagedError:
    """Return the error for a model file whose contents cannot be used."""
    return DamagedError(
        code,
        what,
        received=received,
        expected=expected,
        next="fetch or make the model again, or correct the file",
    )


# ---- from our names to those on disk -------------------------------------------------


def groups_on_disk(config: AlbertConfig) -> int:
    """Return the number of layer groups on disk: with partial sharing, which only
    litebert has, one per layer.

    Such a network is written as the unshared one that it equals; `sharing` in
    config.json says how to merge it.
    """
    if config.sharing == "all":
        return config.num_hidden_groups
    return config.num_hidden_layers


def tensor_names(
    parameter: str,
    config: AlbertConfig,
    head: HeadConfig | None = None,
    layout: TensorNames = ALBERT,
) -> list[str]:
    """Return the names on disk of one of our parameters; with partial sharing, several.

    A Google variable that ends in /kernel is stored as [in, out], the transpose of our
    weight.

    >>> tensor_names("albert.feed_forward.0.output.bias", AlbertConfig())
    ['albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output.bias']
    >>> tensor_names("albert.feed_forward.0.norm.bias", AlbertConfig(), layout=GOOGLE)
    ['bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/beta']
    """
    module, _, kind = parameter.rpartition(".")  # kind: "weight" or "bias"
    on_disk = _modules_on_disk(module, config, head, layout)
    if layout is GOOGLE:
        return [_variable(name, kind) for name in on_disk]
    return [f"{name}.{kind}" for name in on_disk]


def _modules_on_disk(
    module: str, config: AlbertConfig, head: HeadConfig | None, layout: TensorNames
) -> list[str]:
    """Return the names on disk of one of our modules: of the encoder, of a head of
    pretraining, or of the head of a task.
    """
    block = _BLOCK.match(module)
    if block:
        return _layers_of_block(block, config, layout)
    if module == "albert":  # it has only the calibration of an eight-bit network
        return [module]
    owner, _, part = module.partition(".")
    if owner == "albert":
        return [layout.encoder + layout.module(part)]
    if owner in PRETRAINING_HEADS:
        names = PRETRAINING_HEADS[owner].names
        in_albert, in_others = names.get(part, (module, module))
        return [in_albert] if layout is ALBERT else [in_others]
    assert head is not None, f"{module} belongs to a task head"
    if layout is GOOGLE and part == "dense":
        # a classifier's variables have no scope, those of SQuAD 1.1 have one
        return [head.record.variable.removesuffix("output_weights").strip("/")]
    return [head.record.layers.get(part, f"head.{part}")]


def _layers_of_block(
    block: re.Match[str], config: AlbertConfig, layout: TensorNames
) -> list[str]:
    """Return the names of a layer of a block; on disk it stands once in each group and
    inner group that applies it.
    """
    block_kind, number, part = block.groups()
    copies = set[tuple[int, int]]()  # (group, inner group)
    for index, step in enumerate(depth_plan(config)):
        layer, inner = divmod(index, config.inner_group_num)
        if getattr(step, block_kind) == int(number):
            group = layer * groups_on_disk(config) // config.num_hidden_layers
            copies.add((group, inner))
    place = layout.encoder + layout.layer + layout.module(f"{block_kind}.{part}")
    return [place.format(group=group, inner=inner) for group, inner in sorted(copies)]


def _variable(module: str, kind: str) -> str:
    """Return Google's name: an embedding has no suffix for its kind, and each sort of
    layer its own.
    """
    scope = module.replace(".", "/")
    if scope.endswith("_embeddings"):
        return scope
    weight = "kernel"
    bias = "bias"
    if scope in _OUTPUTS:
        weight = "output_weights"
        bias = "output_bias"
    elif scope.rpartition("/")[2].startswith("LayerNorm"):
        weight = "gamma"
        bias = "beta"
    variable = weight if kind == "weight" else bias
    return f"{scope}/{variable}".lstrip("/")


def identity_projection(config: AlbertConfig) -> dict[str, Tensor]:
    """Return what transformers needs on disk if the embeddings are as wide as the
    layers and are not projected.
    """
    weight, bias = PROJECTION
    size = config.hidden_size
    return {weight: torch.eye(size), bias: torch.zeros(size)}


# ---- from names on disk to the usual ones --------------------------------------------


def canonicalize(
    tensors: Mapping[str, Tensor], layout: TensorNames = ALBERT
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Give tensors the names of a whole model, without buffers and tied copies. Return
    them, and a note if the masked-LM head is left out.
    """
    named = _under_usual_names(tensors, layout)
    if _drop_tied_copies(named, layout):
        return named, ()
    # The encoder is usable; the head has an output layer that we do not compute.
    head = f"{layout.predictions}."
    others = {name: x for name, x in named.items() if not name.startswith(head)}
    return others, (_UNTIED,)


def _under_usual_names(
    tensors: Mapping[str, Tensor], layout: TensorNames
) -> dict[str, Tensor]:
    """Add the prefix that an encoder lacks if it was saved by itself, rename old layer
    norms, and drop buffers.
    """
    named = dict[str, Tensor]()
    for name, tensor in tensors.items():
        place = _OLD_NORM.sub(_new_norm, name)
        if place.startswith(("embeddings.", "encoder.", "pooler.")):
            place = layout.encoder + place
        if place in named and not are_equal(named[place], tensor):
            raise damaged_model(
                "LB-609", f"{place} is in the weights twice", f"as {name}, too"
            )
        named[place] = tensor
    for buffer in ("position_ids", "token_type_ids"):  # of transformers, in old files
        named.pop(f"{layout.encoder}embeddings.{buffer}", None)
    return named


def _drop_tied_copies(named: dict[str, Tensor], layout: TensorNames) -> bool:
    """Remove the copies of tied weights that the output layer of the masked LM has;
    return False if one of them differs from what it should be tied to.
    """
    originals = {
        "weight": f"{layout.encoder}embeddings.word_embeddings.weight",
        "bias": f"{layout.predictions}.bias",
    }
    is_tied = True
    for kind, original in originals.items():
        copy = named.pop(f"{layout.predictions}.decoder.{kind}", None)
        # a file may have the copy alone
        if copy is not None and not are_equal(named.setdefault(original, copy), copy):
            is_tied = False
    return is_tied


def _new_norm(match: re.Match[str]) -> str:
    kind = "weight" if match[1] == "gamma" else "bias"
    return f"LayerNorm.{kind}"


def are_equal(first: Tensor, second: Tensor) -> bool:
    """Compare numbers of any dtypes; NaN equals NaN, because another check refuses
    it.
    """
    if first.shape != second.shape:
        return False
    left = first.float()
    right = second.float()
    if torch.equal(left, right):  # faster
        return True
    return torch.allclose(left, right, rtol=0, atol=0, equal_nan=True)
