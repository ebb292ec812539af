"""The variables of Google's code (google-research/albert, modeling.py) for the parameters of our networks.

The table is one more layout beside those of Hugging Face's files (litebert.folder.names), so that groups, inner groups
and partial sharing are the same in every direction.
"""

from __future__ import annotations

import re

from litebert.config import AlbertConfig, HeadConfig
from litebert.folder.names import TensorNames, tensor_names

WORDS = "bert/embeddings/word_embeddings"
STEP = "global_step"
SLOTS = ("adam_m", "adam_v")
"""Both optimizers keep these beside each variable, `<variable>/adam_m` (optimization.py L140)."""
BLOCK = re.compile(r"bert/encoder/transformer/group_(\d{1,6})/inner_group_(\d{1,6})/")

GOOGLE = TensorNames(
    family="Albert",
    encoder="bert/",
    words=WORDS,
    predictions="cls/predictions",
    modules={
        "albert.embedding.word": WORDS,
        "albert.embedding.position": "bert/embeddings/position_embeddings",
        "albert.embedding.segment": "bert/embeddings/token_type_embeddings",
        "albert.embedding.norm": "bert/embeddings/LayerNorm",
        "albert.embedding.projection": "bert/encoder/embedding_hidden_mapping_in",
        "albert.pooler": "bert/pooler/dense",
        "masked_lm": "cls/predictions",
        "masked_lm.dense": "cls/predictions/transform/dense",
        "masked_lm.norm": "cls/predictions/transform/LayerNorm",
        "sentence_order.classifier": "cls/seq_relationship",
    },
    layer="bert/encoder/transformer/group_{group}/inner_group_{inner}",
    block={
        "attention.query": "attention_1/self/query",
        "attention.key": "attention_1/self/key",
        "attention.value": "attention_1/self/value",
        "attention.output": "attention_1/output/dense",
        "attention.norm": "LayerNorm",
        "feed_forward.intermediate": "ffn_1/intermediate/dense",
        "feed_forward.output": "ffn_1/intermediate/output/dense",
        "feed_forward.norm": "LayerNorm_1",
    },
)
_LINEAR_HEADS = {"classifier": "", "qa_outputs": "cls/squad"}
"""The linear heads by their names in Hugging Face's files; GLUE's and RACE's have the same variables."""
_OUTPUTS = ("", "cls/squad", "cls/seq_relationship", "cls/predictions")
_OUTPUT = {"weight": "output_weights", "bias": "output_bias"}
_NORM = {"weight": "gamma", "bias": "beta"}
_DENSE = {"weight": "kernel", "bias": "bias"}


def variables_of(parameter: str, config: AlbertConfig, head: HeadConfig | None = None) -> list[str]:
    """Return the variables that hold one of our parameters; with partial sharing, several.

    A variable that ends in /kernel is stored as [in, out], the transpose of our weight.

    >>> config = AlbertConfig()
    >>> variables_of("masked_lm.dense.weight", config), variables_of("masked_lm.bias", config)
    (['cls/predictions/transform/dense/kernel'], ['cls/predictions/output_bias'])
    >>> variables_of("albert.feed_forward.0.norm.bias", config)
    ['bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/beta']
    """
    return [_variable(name.replace(".", "/")) for name in tensor_names(parameter, config, head, GOOGLE)]


def is_slot(variable: str) -> bool:
    """Tell whether a variable is the optimizer's."""
    return variable.endswith(tuple(f"/{slot}" for slot in SLOTS))


def _variable(path: str) -> str:
    """Name a variable as TensorFlow's layers do."""
    module, _, kind = path.rpartition("/")
    module = _LINEAR_HEADS.get(module, module)
    if module.endswith("_embeddings"):
        return module
    is_norm = module.rpartition("/")[2].startswith("LayerNorm")
    names = _OUTPUT if module in _OUTPUTS else _NORM if is_norm else _DENSE
    return f"{module}/{names[kind]}".lstrip("/")
