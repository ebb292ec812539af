"""Models on the Hugging Face Hub: find and fetch them by name, describe and publish them."""

from litebert.hub.card import CARD_FILE, model_card, write_card
from litebert.hub.fetch import model_files, pull
from litebert.hub.location import locate, require_new
from litebert.hub.names import HubName
from litebert.hub.publish import Publication, plan_publication

__all__ = [
    "CARD_FILE",
    "HubName",
    "Publication",
    "locate",
    "model_card",
    "model_files",
    "plan_publication",
    "pull",
    "require_new",
    "write_card",
]
