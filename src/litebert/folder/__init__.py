"""A model on disk, in the Hugging Face layout."""

from litebert.folder.config import parse_config, read_config, read_head, write_config
from litebert.folder.model import LoadedModel, Start, build_network, head_of, load_model, save_model, start_from
from litebert.folder.sentence_vectors import (
    Pooling,
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_transformers,
)
from litebert.folder.weights import read_weights, widened

__all__ = [
    "LoadedModel", "Pooling", "SentenceVectors", "Start", "build_network", "head_of", "load_model", "parse_config",
    "read_config", "read_head", "read_sentence_vectors", "read_weights", "save_model", "start_from", "widened",
    "write_config", "write_sentence_transformers",
]  # fmt: skip
