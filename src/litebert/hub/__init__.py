"""Find models by name (packaged, in local folders and runs, or on the Hugging Face
Hub), and publish them.
"""

from litebert.hub.locate import (
    PACKAGED,
    PACKAGED_NAME,
    locate,
    name_of_model,
    packaged_model,
    parse_name,
)
from litebert.hub.transfer import hash_model, model_files, pull, push

__all__ = [
    "PACKAGED",
    "PACKAGED_NAME",
    "hash_model",
    "locate",
    "model_files",
    "name_of_model",
    "packaged_model",
    "parse_name",
    "pull",
    "push",
]
