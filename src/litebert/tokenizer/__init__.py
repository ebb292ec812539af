"""Convert text to ids and back as the official ALBERT code does, and train vocabularies."""

from litebert.tokenizer.encoding import Encoding
from litebert.tokenizer.tokenizer import Tokenizer
from litebert.tokenizer.train import train_tokenizer, write_tokenizer

__all__ = ["Encoding", "Tokenizer", "train_tokenizer", "write_tokenizer"]
