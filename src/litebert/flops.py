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
    # The elements of a block's weights: query, key, value and output, then the two
    # layers of the feed-forward block. Each is multiplied once with every token.
    block = 4 * hidden * hidden + 2 * hidden * config.intermediate_size
    # q k^T and the weighted sum of values, with each token of the sequence
    scores_and_mixing = 4 * seq_length * hidden
    of_steps = config.num_steps * (2 * block + scores_and_mixing)
    # the embeddings are looked up, which takes no products, and projected
    projection = 2 * embedding * hidden if config.projects_embeddings else 0
    # masked LM: H to E, then E to the vocabulary, at the masked tokens alone
    head = 2 * (hidden * embedding + embedding * config.vocab_size)
    return round(of_steps) + projection + round(masked_share * head)
