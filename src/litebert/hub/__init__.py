"""Find models by name (packaged, in local folders and runs, or on the Hugging Face
Hub), describe and publish them.
"""

from litebert.hub.transfer import (
    PACKAGED_NAME,
    hash_model,
    locate,
    model_files,
    packaged_model,
    parse_name,
    pull,
)

__all__ = [
    "PACKAGED_NAME",
    "hash_model",
    "locate",
    "model_files",
    "packaged_model",
    "parse_name",
    "pull",
]
