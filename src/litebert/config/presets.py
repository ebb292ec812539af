"""The networks that have a name: the paper's, BERT's for comparison, and small ones for laptops."""

from __future__ import annotations

from litebert.config.schema import Activation, AlbertConfig
from litebert.errors import no_such_name


def _shape(
    hidden_size: int, layers: int, heads: int, *, dropout: float = 0.0, hidden_act: Activation = "gelu_new"
) -> AlbertConfig:
    return AlbertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden_size,
        hidden_act=hidden_act,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def _bert(hidden_size: int, layers: int, heads: int) -> AlbertConfig:
    shape = _shape(hidden_size, layers, heads, dropout=0.1)
    return shape.model_copy(update={"embedding_size": hidden_size, "sharing": "none"})


PRESETS: dict[str, AlbertConfig] = {
    # Ours use the erf form of GELU, which torch computes faster on a CPU than the tanh form.
    "tiny": _shape(128, 3, 2, hidden_act="gelu"),
    "mini": _shape(256, 6, 4, hidden_act="gelu"),
    "small": _shape(512, 6, 8, hidden_act="gelu"),
    # Paper Table 1. v1 was trained with dropout 0.1 (xxlarge without), v2 without. Both used the
    # tanh GELU, whatever later configurations say; xlarge has the published 16 heads, not H/64.
    "base-v1": _shape(768, 12, 12, dropout=0.1),
    "large-v1": _shape(1_024, 24, 16, dropout=0.1),
    "xlarge-v1": _shape(2_048, 24, 16, dropout=0.1),
    "xxlarge-v1": _shape(4_096, 12, 64),
    "base-v2": _shape(768, 12, 12),
    "large-v2": _shape(1_024, 24, 16),
    "xlarge-v2": _shape(2_048, 24, 16),
    "xxlarge-v2": _shape(4_096, 12, 64),
    # The paper's comparison runs: BERT's shapes on ALBERT's vocabulary and objectives.
    "bert-base": _bert(768, 12, 12),
    "bert-large": _bert(1_024, 24, 16),
}

ALIASES = {"base": "base-v2", "large": "large-v2", "xlarge": "xlarge-v2", "xxlarge": "xxlarge-v2"}


def preset(name: str) -> AlbertConfig:
    """Return the network called `name`.

    >>> preset("base-v2").hidden_size
    768
    """
    key = ALIASES.get(name, name) if isinstance(name, str) else name
    if key not in PRESETS:
        raise no_such_name("LB-100", "no preset has this name", str(name), [*PRESETS, *ALIASES], next="litebert sizes")
    return PRESETS[key]
