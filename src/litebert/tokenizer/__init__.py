"""Convert text to ids and back as the official ALBERT code does, and train vocabularies."""

from litebert.tokenizer.tokenizer import Encoding, Tokenizer
from litebert.tokenizer.train import train_tokenizer

__all__ = ["Encoding", "Tokenizer", "train_tokenizer"]
