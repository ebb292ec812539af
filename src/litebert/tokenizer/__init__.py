"""Convert text to ids and back as the official ALBERT code does, and train
vocabularies.
"""

from litebert.tokenizer.on_disk import TOKENIZER_FILES
from litebert.tokenizer.tokenizer import Encoding, Tokenizer
from litebert.tokenizer.training import train_tokenizer

__all__ = ["TOKENIZER_FILES", "Encoding", "Tokenizer", "train_tokenizer"]
