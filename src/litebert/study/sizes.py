"""Parameters and FLOPs of a network, computed from its configuration alone; `litebert sizes` for the presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from litebert.config import PRESETS, AlbertConfig, preset

MASKED_SHARE = 0.15
"""Share of the tokens that the masked LM head reads."""
PAPER_TOKENS = 125_000 * 4_096 * 512
"""Paper 4.1: the steps, sequences and pieces of every comparison run."""
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
    """Parameter counts, and FLOPs per token at sequence lengths 128 and 512.

    Each layer norm counts with the sub-layer it follows. The word table is also the output layer of the masked LM and
    counts once, in `embeddings`. FLOPs include the masked-LM head at 15 % of the tokens, and exclude what is computed
    once per sequence (pooler, sentence order). `formula` counts weights as if none were shared.
    """

    embeddings: int
    projection: int
    attention: int
    ffn: int
    pooler: int
    masked_lm_head: int
    sentence_order_head: int
    forward_flops_128: int
    forward_flops_512: int
    formula: int

    @property
    def body(self) -> int:
        """Parameters without the pretraining heads."""
        return self.embeddings + self.projection + self.attention + self.ffn + self.pooler

    @property
    def total(self) -> int:
        """Parameters with both pretraining heads."""
        return self.body + self.masked_lm_head + self.sentence_order_head

    @property
    def bytes_fp32(self) -> int:
        return 4 * self.total

    @property
    def bytes_bf16(self) -> int:
        return 2 * self.total

    @property
    def training_flops_128(self) -> int:
        """FLOPs per token of forward and backward pass at length 128: three times forward."""
        return 3 * self.forward_flops_128

    @property
    def training_flops_512(self) -> int:
        return 3 * self.forward_flops_512

    @property
    def normalised_cost(self) -> float:
        """`formula` times the paper's 125,000 steps of 4,096 x 512 tokens."""
        return float(self.formula * PAPER_TOKENS)

    def as_json(self) -> dict[str, int | float]:
        """Return every count and every derived figure by name."""
        derived = (name for name, value in vars(Sizes).items() if isinstance(value, property))
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


def sizes_of(config: AlbertConfig) -> Sizes:
    """Count a network's parameters and FLOPs without building it.

    >>> f"{sizes_of(preset('base-v2')).total:,}"
    '11,813,810'
    """
    embedding, hidden, vocab = config.embedding_size, config.hidden_size, config.vocab_size

    def dense(inputs: int, outputs: int) -> int:
        return inputs * outputs + outputs

    shared = config.num_hidden_groups * config.inner_group_num  # distinct blocks, if all steps share them
    num_attention = shared if config.sharing in ("all", "attention") else config.num_steps
    num_ffn = shared if config.sharing in ("all", "ffn") else config.num_steps
    inner, square = config.intermediate_size, hidden * hidden
    return Sizes(
        embeddings=(vocab + config.max_position_embeddings + config.type_vocab_size) * embedding + 2 * embedding,
        projection=dense(embedding, hidden) if config.projects_embeddings else 0,
        attention=num_attention * (4 * dense(hidden, hidden) + 2 * hidden),
        ffn=num_ffn * (dense(hidden, inner) + dense(inner, hidden) + 2 * hidden),
        pooler=dense(hidden, hidden),
        masked_lm_head=dense(hidden, embedding) + 2 * embedding + vocab,
        sentence_order_head=dense(hidden, 2),
        forward_flops_128=forward_flops(config, seq_length=128),
        forward_flops_512=forward_flops(config, seq_length=512),
        # V E + E H + L (4 H^2 + 2 4H^2) + H^2
        formula=vocab * embedding + embedding * hidden + config.num_hidden_layers * 12 * square + square,
    )


def forward_flops(config: AlbertConfig, *, seq_length: int) -> int:
    """Return the FLOPs of one token's forward pass; every step counts, so sharing saves none.

    A multiplication and an addition are two FLOPs. The rule 6N is far too low for shared weights.

    >>> forward_flops(AlbertConfig(), seq_length=128)
    175966003
    """
    embedding, hidden = config.embedding_size, config.hidden_size
    kernels = 4 * hidden * hidden + 2 * hidden * config.intermediate_size
    scores_and_mixing = 4 * seq_length * hidden
    projection = 2 * embedding * hidden if config.projects_embeddings else 0
    head = 2 * (hidden * embedding + embedding * config.vocab_size)
    return config.num_steps * (2 * kernels + scores_and_mixing) + projection + round(MASKED_SHARE * head)


class PresetSizes(dict[str, Sizes]):
    """The sizes of presets by name."""

    def __str__(self) -> str:
        headings = "preset|body|with heads|paper|MB fp32|MB bf16|MFLOP/token 128|512|formula|cost"
        rows = [tuple(headings.split("|"))]
        for name, each in self.items():
            paper = PAPER_PARAMETERS.get(name.removesuffix("-v1").removesuffix("-v2"), "-")
            millions = (each.bytes_fp32, each.bytes_bf16, each.forward_flops_128, each.forward_flops_512)
            cells = (name, f"{each.body:,}", f"{each.total:,}", paper, *(f"{count / 1e6:.1f}" for count in millions))
            rows.append((*cells, f"{each.formula:,}", f"{each.normalised_cost:.3e}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        )

    def as_json(self) -> list[dict[str, str | int | float]]:
        """Return every figure by name."""
        return [{"preset": name, **each.as_json()} for name, each in self.items()]


def sizes(*, presets: Annotated[tuple[str, ...], "--preset", "Show this preset only."] = ()) -> PresetSizes:
    """Show parameters, bytes and FLOPs of the presets.

    litebert sizes
    litebert sizes --preset base-v2 --preset bert-base --json

    FLOPs are those of one token's forward pass at lengths 128 and 512 (training: three times as many). The formula is
    V*E + E*H + L*(4H^2 + 2*4H^2) + H^2; its cost is that times the paper's 125,000 steps of 4,096 x 512 tokens.
    "paper" is Table 1, as printed.
    """
    return PresetSizes({name: sizes_of(preset(name)) for name in presets or PRESETS})
