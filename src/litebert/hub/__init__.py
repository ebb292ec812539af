"""Models by name: the packaged one, folders and runs here, and the Hugging Face Hub; describe and publish them."""

from litebert.hub.card import CARD_FILE, Publication, model_card, plan_publication, write_card
from litebert.hub.location import PACKAGED_NAME, locate, looks_local, packaged_model, require_new
from litebert.hub.transfer import HubName, model_files, pull

__all__ = [
    "CARD_FILE", "PACKAGED_NAME", "HubName", "Publication", "locate", "looks_local", "model_card", "model_files",
    "packaged_model", "plan_publication", "pull", "require_new", "write_card",
]  # fmt: skip
