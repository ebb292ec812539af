"""A model's folder, wherever it is: the packaged one, on this disk, or on the Hugging Face Hub."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from os import PathLike
from pathlib import Path, PurePath
from shlex import quote

from litebert.errors import LitebertError, did_you_mean
from litebert.files import as_path
from litebert.hub.transfer import HubName, pull
from litebert.runs import is_run

PACKAGED_NAME = "litebert"  # the model that comes with the package; a folder of this name here goes first
# The usual folders of models; no owner on the Hub has such a name.
_OUR_FOLDERS = {"runs", "models", "model", "checkpoints", "output", "outputs", "out", "data", "tmp"}
_OUR_MODELS = {"model", "best", "checkpoints"}


def packaged_model() -> Path:
    """Return the folder of the model that comes with the package."""
    folder = Path(str(files("litebert") / "model"))
    if not (folder / "config.json").is_file():
        raise LitebertError(
            "LB-938",
            "no model comes with this build of litebert",
            next="name a model: litebert embed --model FOLDER, or litebert serve FOLDER",
        )
    return folder


def locate(name_or_path: str | PathLike[str], *, legacy_pickle: bool = False) -> Path:
    """Return a model's folder: the named one, a run's, the packaged one, or a Hub name's, fetched if needed.

    A path whose first folder exists is never looked up on the Hub. `legacy_pickle` also accepts pytorch_model.bin from
    repositories that have nothing else.
    """
    path = as_path(name_or_path, "a model")
    found = _found(path)
    if found == "a folder":
        return path / "model" if is_run(path) else path
    if str(name_or_path) == PACKAGED_NAME and found == "nothing":
        return packaged_model()
    name = HubName.parse(str(name_or_path)) if found == "nothing" and not looks_local(str(path)) else None
    if name is not None and not Path(name.repository).parent.is_dir():
        return pull(name, legacy_pickle=legacy_pickle)

    # Suggest the run or model of this name in the usual folders, or a folder with a similar name.
    parent = next(parent for parent in path.absolute().parents if _found(parent) == "a folder")
    missing, similar = path.absolute().relative_to(parent).parts[0], ""
    with suppress(OSError):
        hint = did_you_mean(missing, [entry.name for entry in parent.iterdir() if entry.is_dir()])
        similar = f" ({hint})" if hint.startswith("did") else ""
    usual = [Path(folder) / path for folder in ("runs", "models") if len(path.parts) == 1]
    there = [place for place in usual if _found(place) == "a folder"]
    raise LitebertError(
        "LB-620",
        f"there is no model folder {str(path)[:200]!r}",
        received=found,
        expected=f"a folder{similar}; or a name on the Hub, such as albert/albert-base-v2",
        next=f"--model {quote(str(there[0]))}" if there else f"ls {quote(str(parent))}",
    )


def looks_local(text: str) -> bool:
    """Tell whether a text that could be a name on the Hub means a path on this disk.

    >>> [looks_local(text) for text in ("runs/mine", "mine/model", "albert/albert-base-v2")]
    [True, True, False]
    """
    path = PurePath(text)
    owner, name = path.parts[0], path.name
    return owner in _OUR_FOLDERS or name in _OUR_MODELS or path.suffix in (".json", ".safetensors")


def _found(path: Path) -> str:
    """Describe what is at a path, or why it cannot be read."""
    try:
        return "a folder" if path.is_dir() else "a file" if path.exists() else "nothing"
    except OSError as error:
        return error.strerror or str(error)
