"""Models by name: the packaged one, folders and runs here, and the Hugging Face Hub; describe and publish them."""

from litebert.hub.transfer import PACKAGED_NAME, HubName, locate, model_files, packaged_model, pull

__all__ = ["PACKAGED_NAME", "HubName", "locate", "model_files", "packaged_model", "pull"]
