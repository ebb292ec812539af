"""Which Hugging Face tensors hold each of our parameters (AlbertForPreTraining has 32)."""

from __future__ import annotations

import re

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import depth_plan

_FIXED = {
    "albert.embedding.word": "albert.embeddings.word_embeddings",
    "albert.embedding.position": "albert.embeddings.position_embeddings",
    "albert.embedding.segment": "albert.embeddings.token_type_embeddings",
    "albert.embedding.norm": "albert.embeddings.LayerNorm",
    "albert.embedding.projection": "albert.encoder.embedding_hidden_mapping_in",
    "albert.pooler": "albert.pooler",
    "albert": "albert",  # the calibration of an eight-bit network
    "masked_lm": "predictions",
    "masked_lm.dense": "predictions.dense",
    "masked_lm.norm": "predictions.LayerNorm",
    "sentence_order.classifier": "sop_classifier.classifier",
}
_IN_BLOCK = {
    "attention.query": "attention.query",
    "attention.key": "attention.key",
    "attention.value": "attention.value",
    "attention.output": "attention.dense",
    "attention.norm": "attention.LayerNorm",
    "feed_forward.intermediate": "ffn",
    "feed_forward.output": "ffn_output",
    "feed_forward.norm": "full_layer_layer_norm",
}
# transformers has no conditional head: these are the official variables (squad_utils.py L1230).
_CONDITIONAL = {
    "head.start": "start_logits.dense",
    "head.end_hidden": "end_logits.dense_0",
    "head.end_norm": "end_logits.LayerNorm",
    "head.end": "end_logits.dense_1",
    "head.answer_hidden": "answer_class.dense_0",
    "head.answer": "answer_class.dense_1",
}
_BLOCK = re.compile(r"albert\.(attention|feed_forward)\.(\d+)\.(\w+)$")


def groups_on_disk(config: AlbertConfig) -> int:
    """Return how many layer groups the folder holds: all layers where sharing is partial.

    Hugging Face knows groups only. A network that shares attention alone, say, is written as the
    unshared network it equals; `sharing` in config.json lets us fold it back when reading.
    """
    return config.num_hidden_groups if config.sharing == "all" else config.num_hidden_layers


def tensor_names(parameter: str, config: AlbertConfig, head: HeadConfig | None = None) -> list[str]:
    """Return the names on disk of one of our parameters; several where sharing is partial.

    >>> tensor_names("albert.feed_forward.0.output.bias", AlbertConfig())
    ['albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output.bias']
    """
    module, _, kind = parameter.rpartition(".")
    match = _BLOCK.match(module)
    if module == "head.dense":
        is_span = head is not None and head.kind == "question-answering"
        return [f"{'qa_outputs' if is_span else 'classifier'}.{kind}"]
    if module.startswith("exits."):  # transformers has none: it reads the head after the last step
        return [f"{module.removesuffix('.dense')}.{kind}"]
    if match is None:
        return [f"{(_FIXED | _CONDITIONAL)[module]}.{kind}"]
    list_name, block, layer = match[1], int(match[2]), match[3]
    suffix = f"{_IN_BLOCK[f'{list_name}.{layer}']}.{kind}"
    return [
        f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}.{suffix}"
        for group, inner in _places(config, list_name, block)
    ]


def _places(config: AlbertConfig, list_name: str, block: int) -> list[tuple[int, int]]:
    """Return (group, inner group) of every place on disk where a block is written."""
    places = set()
    for index, step in enumerate(depth_plan(config)):
        layer, inner = divmod(index, config.inner_group_num)
        if getattr(step, list_name) == block:
            group = layer * groups_on_disk(config) // config.num_hidden_layers
            places.add((group, inner))
    return sorted(places)
