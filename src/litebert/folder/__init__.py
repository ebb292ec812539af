"""A model on disk, in the Hugging Face layout."""

from litebert.folder.config import read_config, read_head
from litebert.folder.model import ModelFolder
from litebert.folder.storage import (
    MODEL_FILES,
    fill_gaps,
    read_folder,
    read_shape,
    start_from,
    write_folder,
)
from litebert.folder.vectors import SentenceVectors
from litebert.folder.weights import INT8_FILE, hash_weights, weights_path

__all__ = [
    "INT8_FILE",
    "MODEL_FILES",
    "ModelFolder",
    "SentenceVectors",
    "fill_gaps",
    "hash_weights",
    "read_config",
    "read_folder",
    "read_head",
    "read_shape",
    "start_from",
    "weights_path",
    "write_folder",
]
