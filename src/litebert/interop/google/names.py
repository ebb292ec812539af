"""The names of a model folder's tensors in Google's code, for import and export.

A model folder has Hugging Face's names, whose layers are grouped as Google's are. `place` maps a
tensor of the folder to a variable of the checkpoint; an import does so for every tensor.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SLOTS = ("adam_m", "adam_v")
"""Both optimizers keep these beside each variable, `<variable>/adam_m` (optimization.py L140)."""
STEP = "global_step"
WORDS = "bert/embeddings/word_embeddings"
SECOND_WORDS = "bert/embeddings/word_embeddings_2"
"""albert_zh's projection of word embeddings from E to H (its embedding_lookup_factorized)."""

OFFICIAL_BLOCK = "bert/encoder/transformer/group_{group}/inner_group_{inner}/"
OLD_BLOCK = "bert/encoder/layer_shared/"
"""The only block of albert_zh, which is older than Google's published names."""
HUB_PREFIX = "module/"
"""What TF-Hub puts before every name."""

_TABLES = {
    "albert.embeddings.word_embeddings": WORDS,
    "albert.embeddings.position_embeddings": "bert/embeddings/position_embeddings",
    "albert.embeddings.token_type_embeddings": "bert/embeddings/token_type_embeddings",
}
_DENSE = {
    "albert.encoder.embedding_hidden_mapping_in": "bert/encoder/embedding_hidden_mapping_in",
    "albert.pooler": "bert/pooler/dense",
    "predictions.dense": "cls/predictions/transform/dense",
    "start_logits.dense": "start_logits/dense",
    "end_logits.dense_0": "end_logits/dense_0",
    "end_logits.dense_1": "end_logits/dense_1",
    "answer_class.dense_0": "answer_class/dense_0",
    "answer_class.dense_1": "answer_class/dense_1",
}
_NORMS = {
    "albert.embeddings.LayerNorm": "bert/embeddings/LayerNorm",
    "predictions.LayerNorm": "cls/predictions/transform/LayerNorm",
    "end_logits.LayerNorm": "end_logits/LayerNorm",
}
_OUTPUTS = {
    "sop_classifier.classifier": "cls/seq_relationship/",
    "classifier": "",
    "qa_outputs": "cls/squad/",
    "predictions": "cls/predictions/",
}
_BLOCK_DENSE = {
    "attention.query": "attention_1/self/query",
    "attention.key": "attention_1/self/key",
    "attention.value": "attention_1/self/value",
    "attention.dense": "attention_1/output/dense",
    "ffn": "ffn_1/intermediate/dense",
    "ffn_output": "ffn_1/intermediate/output/dense",
}
_BLOCK_NORMS = {"attention.LayerNorm": "LayerNorm", "full_layer_layer_norm": "LayerNorm_1"}
_OLD_BLOCK_DENSE = {
    "attention.query": "attention/self/query",
    "attention.key": "attention/self/key",
    "attention.value": "attention/self/value",
    "attention.dense": "attention/output/dense",
    "ffn": "intermediate/dense",
    "ffn_output": "output/dense",
}
_OLD_BLOCK_NORMS = {"attention.LayerNorm": "attention/output/LayerNorm", "full_layer_layer_norm": "output/LayerNorm"}
_KERNEL = {"weight": "/kernel", "bias": "/bias"}
_NORM = {"weight": "/gamma", "bias": "/beta"}
_OUTPUT = {"weight": "output_weights", "bias": "output_bias"}
_BLOCK = re.compile(r"albert\.encoder\.albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\.(.+)")


class StoredVariable(NamedTuple):
    """A variable of a checkpoint; a kernel is stored as [in, out], the transpose of ours."""

    variable: str
    is_kernel: bool = False


def place(tensor: str, *, is_old: bool = False) -> StoredVariable:
    """Return the variable of a tensor of a model folder, by its official or an old name.

    >>> place("predictions.dense.weight")
    StoredVariable(variable='cls/predictions/transform/dense/kernel', is_kernel=True)
    >>> place("classifier.weight")
    StoredVariable(variable='output_weights', is_kernel=False)
    """
    module, _, kind = tensor.rpartition(".")
    if match := _BLOCK.fullmatch(module):
        group, inner, module = match.groups()
        block = OLD_BLOCK if is_old else OFFICIAL_BLOCK.format(group=group, inner=inner)
        dense, norms = (_OLD_BLOCK_DENSE, _OLD_BLOCK_NORMS) if is_old else (_BLOCK_DENSE, _BLOCK_NORMS)
    else:
        block, dense, norms = "", _DENSE, _NORMS
    if module in dense:
        return StoredVariable(f"{block}{dense[module]}{_KERNEL[kind]}", is_kernel=kind == "weight")
    if module in norms:
        return StoredVariable(f"{block}{norms[module]}{_NORM[kind]}")
    if module in _OUTPUTS:
        return StoredVariable(f"{_OUTPUTS[module]}{_OUTPUT[kind]}")
    return StoredVariable(_TABLES[module])


def is_slot(variable: str) -> bool:
    """Tell whether a variable is the optimizer's."""
    return variable.endswith(tuple(f"/{slot}" for slot in SLOTS))
