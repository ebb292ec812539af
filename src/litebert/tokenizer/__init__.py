"""Convert text to ids and back as the official ALBERT code does, and train
vocabularies.
"""

from litebert.tokenizer.models import train_tokenizer
from litebert.tokenizer.tokenizer import Encoding, Tokenizer

__all__ = ["Encoding", "Tokenizer", "train_tokenizer"]
