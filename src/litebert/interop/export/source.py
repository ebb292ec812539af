"""What is exported, a model folder, and where the export goes."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from litebert.errors import LitebertError
from litebert.files import require_new, write_bytes
from litebert.folder import ModelFolder, read_folder
from litebert.folder.config import refusal_of
from litebert.hub import model_files
from litebert.interop.export.network import PaddedNetwork, pad_network
from litebert.nn import USUAL_HEADS, Network
from litebert.tokenizer import Tokenizer


class SourceModel(NamedTuple):
    """A loaded model, and the same weights for padded rectangles."""

    network: Network
    padded: PaddedNetwork
    tokenizer: Tokenizer
    has_head: bool = True  # whether the outputs are those of its head


def open_source(
    folder: Path, *, has_head: bool = True, has_states: bool = False
) -> SourceModel:
    """Load a model folder to export, with its head or without; `has_states` adds hidden
    states to a head's outputs.
    """
    model = read_folder(folder)
    if not model.config.has_full_attention:
        raise LitebertError(
            "LB-470",
            f"attention {model.config.attention} cannot be exported",
            next="use the model with litebert",
        )
    if has_head:
        _require_usual_head(model, folder)
    padded = pad_network(model.network, has_head=has_head, has_states=has_states)
    return SourceModel(model.network, padded, model.require_tokenizer(), has_head)


def _require_usual_head(model: ModelFolder, folder: Path) -> None:
    """Raise for heads that other programs cannot compute, or turn into answers."""
    added = sorted({*getattr(model.network, "heads", ())} - {*USUAL_HEADS})
    if added:
        raise LitebertError(
            "LB-477",
            f"the pretraining heads of {folder} cannot be exported",
            received=", ".join(added),
            expected=f"only {' and '.join(USUAL_HEADS)}",
            next="export its encoder, or use the model with litebert",
        )
    refusal = refusal_of(model.head)
    if refusal:
        raise LitebertError(
            "LB-476",
            f"the answers of {folder} cannot be exported: {refusal}",
            received=str(model.head),
            next="use the model with litebert, or export its encoder",
        )


def require_free(output: Path, *, source: Path) -> dict[Path, bytes]:
    """Check that an output is new and not next to another model; return the files that
    belong next to it.
    """
    require_new(output)
    if output.suffix != ".onnx":
        raise _unfit(output, f"a file that ends in {output.suffix or 'nothing'}")
    beside = dict[Path, bytes]()
    for name, file in model_files(source).items():
        if _is_of_model_alone(name):
            continue
        place = output.parent / name
        beside[place] = file.read_bytes()
        if place.exists() and place.read_bytes() != beside[place]:
            raise _unfit(output, f"{place} of another model")
    return beside


def _unfit(output: Path, received: str) -> LitebertError:
    usual = output.parent / output.stem / "model.onnx"
    return LitebertError(
        "LB-751",
        f"{output} cannot be the output",
        received=received,
        expected="a file that ends in .onnx, in its own folder",
        next=f"choose an output such as {usual}",
    )


def _is_of_model_alone(name: str) -> bool:
    """Return whether exports do not need a file of a model folder: the weights of the
    network, their index, the card.
    """
    is_weights = "/" not in name and ".safetensors" in name
    return is_weights or name == "README.md"


def write_beside(beside: Mapping[Path, bytes], output: Path, data: bytes) -> None:
    """Write an output, which must still be new, after the files that belong next to
    it; if that fails or is stopped, nothing new stays.
    """
    written = list[Path]()
    # folders to remove, such as 1_Pooling/, the inner ones first; those that exist stay
    parents = sorted({path.parent for path in beside}, reverse=True)
    new_folders = [folder for folder in parents if not folder.exists()]
    try:
        for path, contents in beside.items():
            is_new = not path.exists()
            write_bytes(path, contents, if_exists="refuse", accepts_same=True)
            if is_new:
                written.append(path)
        write_bytes(output, data, if_exists="refuse")
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        for folder in new_folders:
            with suppress(OSError):  # it was not made, or has other files
                folder.rmdir()
        raise
