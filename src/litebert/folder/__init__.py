"""A model on disk, in the Hugging Face layout."""

from litebert.folder.config import (
    Pooling,
    SentenceVectors,
    parse_config,
    read_config,
    read_head,
    read_sentence_vectors,
    write_config,
    write_sentence_transformers,
)
from litebert.folder.model import LoadedModel, Start, build_network, head_of, load_model, save_model, start_from
from litebert.folder.weights import read_weights, widened

__all__ = [
    "LoadedModel", "Pooling", "SentenceVectors", "Start", "build_network", "head_of", "load_model", "parse_config",
    "read_config", "read_head", "read_sentence_vectors", "read_weights", "save_model", "start_from", "widened",
    "write_config", "write_sentence_transformers",
]  # fmt: skip
