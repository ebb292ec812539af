"""Convert text to ids and back as the official ALBERT code does, and train
vocabularies.
"""

from litebert.tokenizer.models import train_tokenizer
from litebert.tokenizer.tokenizer import TOKENIZER_FILES, Encoding, Tokenizer

__all__ = ["TOKENIZER_FILES", "Encoding", "Tokenizer", "train_tokenizer"]
