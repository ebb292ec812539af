"""The FLOPs of a network, computed from its configuration."""

from litebert.config import AlbertConfig

MASKED_SHARE = 0.15
"""Share of the tokens that the masked-LM head reads."""


def forward_flops(
    config: AlbertConfig, *, seq_length: float, masked_share: float = MASKED_SHARE
) -> int:
    """Return the FLOPs of the forward pass per token; every step counts, so sharing
    saves nothing. Training takes three times as many.

    A multiplication and an addition are two FLOPs. The rule 6N is far too low for
    shared weights.

    >>> forward_flops(AlbertConfig(), seq_length=128)
    175966003
    """
    embedding = config.embedding_size
    hidden = config.hidden_size
    kernels = 4 * hidden * hidden + 2 * hidden * config.intermediate_size
    scores_and_mixing = 4 * seq_length * hidden
    projection = 2 * embedding * hidden if config.projects_embeddings else 0
    head = 2 * (hidden * embedding + embedding * config.vocab_size)
    of_steps = config.num_steps * (2 * kernels + scores_and_mixing)
    return round(of_steps) + projection + round(masked_share * head)
