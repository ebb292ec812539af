"""A network so small that a test can train it."""

from litebert.config import AlbertConfig
from litebert.tokenizer import Tokenizer


def tiny(tokenizer: Tokenizer) -> AlbertConfig:
    sizes = {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return AlbertConfig(vocab_size=tokenizer.vocab_size, intermediate_size=32, **sizes)
