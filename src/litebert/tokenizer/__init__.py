"""Text to ids and ids to text as in the official ALBERT code, and the training of vocabularies."""

from litebert.tokenizer.encoding import Encoding
from litebert.tokenizer.tokenizer import Tokenizer
from litebert.tokenizer.train import train_tokenizer, write_tokenizer

__all__ = ["Encoding", "Tokenizer", "train_tokenizer", "write_tokenizer"]
