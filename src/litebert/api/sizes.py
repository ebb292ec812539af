"""Parameters, bytes and FLOPs of a network, computed from its configuration."""

from dataclasses import asdict, dataclass
from typing import Annotated

from litebert.answers import Shown
from litebert.config import PRESETS, AlbertConfig, preset
from litebert.flops import forward_flops
from litebert.report.tables import Cell, Table

PAPER_TOKENS = 125_000 * 4_096 * 512
"""Paper 4.1: steps x sequences x pieces of every comparison run."""
PAPER_PARAMETERS = {
    "base": "12M",
    "large": "18M",
    "xlarge": "60M",
    "xxlarge": "235M",  # 233M and 225M elsewhere in the paper; none is exact
    "bert-base": "108M",
    "bert-large": "334M",
}
"""Paper Table 1, as printed."""


@dataclass(frozen=True)
class Sizes:
    """Parameters, bytes, and FLOPs per token at sequence lengths 128 and 512 (training
    takes three times as many).

    Each layer norm counts with the sub-layer that it follows. The word table is also
    the output layer of the masked LM; it counts once, in `embeddings`. FLOPs include
    the masked-LM head at 15 % of the tokens, but not what is computed once per sequence
    (pooler, sentence order).
    """

    embeddings: int
    projection: int
    attention: int
    ffn: int
    pooler: int
    masked_lm_head: int
    sentence_order_head: int
    body: int  # without the two heads
    total: int
    bytes_fp32: int
    forward_flops_128: int
    forward_flops_512: int
    # V E + E H + L (4 H^2 + 2 4H^2) + H^2: all matrices, if no layers shared them
    num_unshared_weights: int
    training_cost: float  # num_unshared_weights times the paper's tokens


def sizes_of(config: AlbertConfig) -> Sizes:
    """Count a network's parameters and FLOPs without building it.

    >>> f"{sizes_of(preset('base-v2')).total:,}"
    '11,813,810'
    """
    embedding = config.embedding_size
    hidden = config.hidden_size
    vocab = config.vocab_size
    intermediate = config.intermediate_size
    square = hidden * hidden

    def dense(inputs: int, outputs: int) -> int:
        return inputs * outputs + outputs  # a kernel and its bias

    # distinct blocks, if all steps share them
    shared = config.num_hidden_groups * config.inner_group_num
    num_attention = config.num_steps
    if config.sharing in ("all", "attention"):
        num_attention = shared
    num_ffn = config.num_steps
    if config.sharing in ("all", "ffn"):
        num_ffn = shared

    positions = config.max_position_embeddings
    norm = 2  # rows of a layer norm: scale and shift
    rows = vocab + positions + config.type_vocab_size + norm
    embeddings = rows * embedding
    projection = dense(embedding, hidden) if config.projects_embeddings else 0
    attention = num_attention * (4 * dense(hidden, hidden) + norm * hidden)
    up_and_down = dense(hidden, intermediate) + dense(intermediate, hidden)
    ffn = num_ffn * (up_and_down + norm * hidden)
    pooler = dense(hidden, hidden)
    body = embeddings + projection + attention + ffn + pooler
    masked_lm_head = dense(hidden, embedding) + norm * embedding + vocab
    sentence_order_head = dense(hidden, 2)
    total = body + masked_lm_head + sentence_order_head
    layers = config.num_hidden_layers * 12 * square
    num_unshared_weights = vocab * embedding + embedding * hidden + layers + square
    return Sizes(
        embeddings=embeddings,
        projection=projection,
        attention=attention,
        ffn=ffn,
        pooler=pooler,
        masked_lm_head=masked_lm_head,
        sentence_order_head=sentence_order_head,
        body=body,
        total=total,
        bytes_fp32=4 * total,
        forward_flops_128=forward_flops(config, seq_length=128),
        forward_flops_512=forward_flops(config, seq_length=512),
        num_unshared_weights=num_unshared_weights,
        training_cost=float(num_unshared_weights * PAPER_TOKENS),
    )


def sizes(
    *, presets: Annotated[tuple[str, ...], "--preset", "Show this preset only."] = ()
) -> Shown[list[dict[str, str | int | float]]]:
    """Show parameters, bytes and FLOPs of the presets.

    litebert sizes
    litebert sizes --preset base-v2 --preset bert-base --json

    FLOPs are per token of a forward pass at lengths 128 and 512 (training: three times
    as many). "paper" is Table 1, as printed. --json also has num_unshared_weights, the
    weights of all matrices if no layers shared them: V*E + E*H + L*(4H^2 +
    2*4H^2) + H^2; and training_cost, that number times the paper's 125,000 steps of
    4,096 x 512 tokens.
    """
    counted = {name: sizes_of(preset(name)) for name in presets or PRESETS}
    headings = (
        "preset",
        "body",
        "with heads",
        "paper",
        "MB fp32",
        "MFLOP at 128",
        "at 512",
    )
    rows = list[tuple[Cell, ...]]()
    for name, size in counted.items():
        row = (
            name,
            size.body,
            size.total,
            PAPER_PARAMETERS.get(name.removesuffix("-v1").removesuffix("-v2")),
            size.bytes_fp32 / 1e6,
            size.forward_flops_128 / 1e6,
            size.forward_flops_512 / 1e6,
        )
        rows.append(row)
    records = [{"preset": name, **asdict(size)} for name, size in counted.items()]
    return Shown(records, str(Table(headings, rows, decimals=1)))
