"""A model on disk, in the Hugging Face layout."""

from litebert.folder.config import (
    SentenceVectors,
    read_config,
    read_head,
    read_sentence_vectors,
    write_sentence_transformers,
)
from litebert.folder.model import (
    INT8_FILE,
    fill_gaps,
    hash_weights,
    load_model,
    save_model,
    start_from,
    weights_path,
)

__all__ = [
    "INT8_FILE",
    "SentenceVectors",
    "fill_gaps",
    "hash_weights",
    "load_model",
    "read_config",
    "read_head",
    "read_sentence_vectors",
    "save_model",
    "start_from",
    "weights_path",
    "write_sentence_transformers",
]
