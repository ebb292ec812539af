"""The source of an export, a model folder, and its target, which must be new files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from litebert.config import AlbertConfig
from litebert.errors import LitebertError, did_you_mean
from litebert.files import write_bytes
from litebert.folder import load_model
from litebert.interop.export.padded import PaddedNetwork
from litebert.interop.export.readers import padded
from litebert.nn import AlbertForTask, Network
from litebert.tokenizer import Tokenizer

ENCODER_ONLY = "none"
_COMPANIONS = ("config.json", "spiece.model", "vocab.txt", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class SourceModel:
    """A loaded model, and the same weights for padded rectangles; `head` names its outputs."""

    folder: Path
    head: str
    network: Network
    padded: PaddedNetwork
    tokenizer: Tokenizer

    @property
    def weight_bytes(self) -> int:
        """Bytes of the folder's safetensors files."""
        return sum(path.stat().st_size for path in self.folder.glob("*.safetensors"))


def open_source(folder: Path, *, head: str | None = None, has_states: bool = False) -> SourceModel:
    """Load a model folder to export it with its own head, or without one (`head="none"`).

    `has_states` adds the last hidden states to the outputs of the head.

    Raises:
        LitebertError: LB-470, its attention cannot be exported; LB-750, the folder has no such
            head; LB-602, no weights; LB-213, no tokenizer.
    """
    loaded = load_model(folder)
    _require_full_attention(loaded.network.config)
    tokenizer, network = Tokenizer.load(folder), loaded.network
    own = network.head_config.kind if isinstance(network, AlbertForTask) else "pretraining"
    if head not in (None, own, ENCODER_ONLY):
        raise LitebertError(
            "LB-750",
            f"{folder} cannot be exported with this head",
            received=f"--head {head}",
            expected=f"{own}, the head it has, or none for the encoder alone",
            next=did_you_mean(head, (own, ENCODER_ONLY)),
        )
    chosen = head or own
    rectangle = padded(network, missing=loaded.missing, has_head=chosen != ENCODER_ONLY, has_states=has_states)
    return SourceModel(folder, chosen, network, rectangle, tokenizer)


def _require_full_attention(config: AlbertConfig) -> None:
    if config.attention != "full":
        raise LitebertError(
            "LB-470",
            "this kind of attention cannot be exported",
            received=f"attention {config.attention}",
            expected="attention full",
            next="use the model in Python or with the litebert commands",
        )


def require_free(output: Path, *, suffix: str, source: Path) -> None:
    """Refuse to overwrite anything: the file itself, or files of another model beside it.

    Raises:
        LitebertError: LB-751, the output exists or has another suffix; LB-752, files of another
            model are in its folder.
    """
    if obstacle := _obstacle(output, suffix=suffix):
        raise LitebertError(
            "LB-751",
            f"{output} cannot be the output",
            received=obstacle,
            expected=f"a new file that ends in {suffix}",
            next=f"choose another path, for instance {output.parent / output.stem}/model{suffix}",
        )
    for name in _companions(source):
        beside = output.parent / name
        if beside.exists() and beside.read_bytes() != (source / name).read_bytes():
            raise LitebertError(
                "LB-752",
                f"{output.parent} belongs to another model",
                received=f"{beside} differs from {source / name}",
                expected="a new folder, or one with the same tokenizer and config.json",
                next=f"choose another folder, for instance {output.parent / output.stem}",
            )


def write_export(output: Path, data: bytes, *, source: Path) -> None:
    """Write a file with config.json and the tokenizer beside it, so that the folder is complete."""
    for name in _companions(source):
        if not (output.parent / name).exists():
            write_bytes(output.parent / name, (source / name).read_bytes())
    write_bytes(output, data)


def _obstacle(output: Path, *, suffix: str) -> str:
    """Say why a path cannot become a new file; the result is empty if it can."""
    if output.is_dir():
        return "a folder"
    if output.exists():
        return "it exists"
    if output.suffix != suffix:
        return output.suffix or "a name without suffix"
    nearest = next(parent for parent in output.absolute().parents if parent.exists())
    return "" if nearest.is_dir() else f"{nearest} is no folder"


def _companions(folder: Path) -> list[str]:
    return [name for name in _COMPANIONS if (folder / name).is_file()]
