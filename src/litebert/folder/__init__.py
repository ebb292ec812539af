"""A model on disk, in the Hugging Face layout."""

from litebert.folder.configuration import read_config, write_config
from litebert.folder.model import LoadedModel, load_model, save_model

__all__ = ["LoadedModel", "load_model", "read_config", "save_model", "write_config"]
