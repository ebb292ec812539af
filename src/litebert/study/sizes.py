"""Parameters and FLOPs of a network, computed from its configuration alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from litebert.config import AlbertConfig
from litebert.files import Json

MASKED_SHARE = 0.15
"""Share of the tokens that the masked LM head reads."""

PAPER_STEPS, PAPER_BATCH_SIZE, PAPER_SEQ_LENGTH = 125_000, 4_096, 512
"""Paper 4.1: the training of every comparison run."""

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

    Each layer norm counts with the sub-layer it follows. The word table is also the output layer of
    the masked LM and counts once, in `embeddings`. FLOPs include the masked-LM head at 15 % of the
    tokens, and exclude what is computed once per sequence (pooler, sentence order).
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
        """Bytes of all parameters in float32."""
        return 4 * self.total

    @property
    def bytes_bf16(self) -> int:
        """Bytes of all parameters in bfloat16."""
        return 2 * self.total

    @property
    def training_flops_128(self) -> int:
        """FLOPs per token of forward and backward pass at length 128: three times forward."""
        return 3 * self.forward_flops_128

    @property
    def training_flops_512(self) -> int:
        """FLOPs per token of forward and backward pass at length 512: three times forward."""
        return 3 * self.forward_flops_512

    @property
    def normalised_cost(self) -> float:
        """`formula` times the paper's 125,000 steps of 4,096 x 512 tokens."""
        return float(self.formula * PAPER_STEPS * PAPER_BATCH_SIZE * PAPER_SEQ_LENGTH)

    def to_json(self) -> dict[str, Json]:
        """Return every count and every derived figure by name."""
        return {
            **asdict(self),
            "body": self.body,
            "total": self.total,
            "bytes_fp32": self.bytes_fp32,
            "bytes_bf16": self.bytes_bf16,
            "training_flops_128": self.training_flops_128,
            "training_flops_512": self.training_flops_512,
            "normalised_cost": self.normalised_cost,
        }


def sizes_of(config: AlbertConfig) -> Sizes:
    """Count a network's parameters and FLOPs without building it.

    >>> from litebert.config import preset
    >>> f"{sizes_of(preset('base-v2')).total:,}"
    '11,813,810'
    """
    embedding, hidden, vocab = config.embedding_size, config.hidden_size, config.vocab_size
    rows = vocab + config.max_position_embeddings + config.type_vocab_size
    num_attention, num_ffn = _num_blocks(config)
    return Sizes(
        embeddings=rows * embedding + _norm(embedding),
        projection=_dense(embedding, hidden) if config.projects_embeddings else 0,
        attention=num_attention * (4 * _dense(hidden, hidden) + _norm(hidden)),
        ffn=num_ffn * _feed_forward(hidden, config.intermediate_size),
        pooler=_dense(hidden, hidden),
        masked_lm_head=_dense(hidden, embedding) + _norm(embedding) + vocab,
        sentence_order_head=_dense(hidden, 2),
        forward_flops_128=forward_flops(config, seq_length=128),
        forward_flops_512=forward_flops(config, seq_length=512),
        formula=_formula(config),
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


def _formula(config: AlbertConfig) -> int:
    """Return V E + E H + L (4 H^2 + 2 4H^2) + H^2, which counts weights as if none were shared."""
    vocab, embedding, hidden = config.vocab_size, config.embedding_size, config.hidden_size
    square = hidden * hidden
    layers = config.num_hidden_layers * (4 * square + 2 * 4 * square)
    return vocab * embedding + embedding * hidden + layers + square


def _num_blocks(config: AlbertConfig) -> tuple[int, int]:
    """Return how many distinct attention and feed-forward blocks the layers use."""
    shared = config.num_hidden_groups * config.inner_group_num
    own = config.num_steps
    return (
        shared if config.sharing in ("all", "attention") else own,
        shared if config.sharing in ("all", "ffn") else own,
    )


def _feed_forward(hidden: int, intermediate: int) -> int:
    return _dense(hidden, intermediate) + _dense(intermediate, hidden) + _norm(hidden)


def _dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _norm(size: int) -> int:
    return 2 * size
