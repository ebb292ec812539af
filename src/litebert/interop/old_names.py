"""Names of tensors in PyTorch ALBERTs from before transformers, and their names today.

Source: albert_pytorch (lonePatient). Its English models call their modules as Google's TensorFlow
variables; its Chinese ones (`layer_shared`) hold the older network of albert_zh (brightmart).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.errors import LitebertError

_SHARED = r"encoder\.layer_shared\."
_FIRST = "encoder.albert_layer_groups.0.albert_layers.0."
_LAYER = r"(albert_layers\.\d+\.)"
_RULES = [
    (r"^module\.", ""),
    (r"^bert\.(albert\.)?(?=(embeddings|encoder|pooler)\.)", "albert."),
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
    (r"transformer\.group\.(\d+)\.inner_group\.", r"albert_layer_groups.\1.albert_layers."),
    (rf"{_LAYER}attention\.self\.", r"\1attention."),
    (rf"{_LAYER}attention\.output\.dense\.", r"\1attention.dense."),
    (rf"{_LAYER}LayerNorm\.", r"\1attention.LayerNorm."),
    (rf"{_LAYER}LayerNorm_1\.", r"\1full_layer_layer_norm."),
    (rf"{_LAYER}ffn\.intermediate\.output\.dense\.", r"\1ffn_output."),
    (rf"{_LAYER}ffn\.intermediate\.dense\.", r"\1ffn."),
    (rf"{_SHARED}attention\.self\.", f"{_FIRST}attention."),
    (rf"{_SHARED}attention\.output\.", f"{_FIRST}attention."),
    (rf"{_SHARED}intermediate\.dense\.", f"{_FIRST}ffn."),
    (rf"{_SHARED}output\.dense\.", f"{_FIRST}ffn_output."),
    (rf"{_SHARED}output\.LayerNorm\.", f"{_FIRST}full_layer_layer_norm."),
    (r"pooler\.dense\.", "pooler."),
    (r"^cls\.predictions\.(transform\.)?", "predictions."),
    (r"^cls\.seq_relationship\.", "sop_classifier.classifier."),
]
_WORDS = "albert.embeddings.word_embeddings.weight"
_TO_HIDDEN = "albert.embeddings.word_embeddings_2.weight"
_FROM_HIDDEN = "predictions.project_layer.weight"
_DECODER = "predictions.decoder.weight"


def renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under today's names in transformers.

    >>> list(renamed({"bert.pooler.dense.bias": torch.zeros(1)}))
    ['albert.pooler.bias']
    """
    return {_renamed(name): tensor for name, tensor in tensors.items()}


def folded(
    tensors: Mapping[str, Tensor], config: AlbertConfig, *, norm: object, source: Path
) -> tuple[dict[str, Tensor], AlbertConfig]:
    """Fold albert_zh's word projection into its word table, which computes the same with E = H.

    That network adds positions and segments after the projection to H. `norm` is ln_type of its
    configuration. Tensors of all other networks are returned unchanged.
    """
    if _TO_HIDDEN not in tensors:
        return dict(tensors), config
    if norm not in (None, "postln"):
        raise LitebertError(
            "LB-740",
            f"{source} normalises before its sub-layers, which no ALBERT of the paper does",
            received=f"ln_type {norm}",
            expected="layer norms after the residuals (postln)",
            next="choose another model: this network cannot be computed here",
        )
    rest = dict(tensors)
    words, to_hidden = rest.pop(_WORDS).float(), rest.pop(_TO_HIDDEN).float()
    if torch.equal(rest.get(_DECODER, words).float(), words):
        rest.pop(_DECODER, None)
    if torch.equal(rest.get(_FROM_HIDDEN, to_hidden.T).float(), to_hidden.T):
        rest.pop(_FROM_HIDDEN, None)
    rest[_WORDS] = words @ to_hidden.T  # V, H
    return rest, config.model_copy(update={"embedding_size": config.hidden_size})


def _renamed(name: str) -> str:
    for pattern, replacement in _RULES:
        name = re.sub(pattern, replacement, name)
    return name
