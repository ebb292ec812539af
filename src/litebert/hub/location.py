"""A model's folder, wherever it is: on this disk, or on the Hugging Face Hub."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from litebert.errors import LitebertError, did_you_mean
from litebert.files import as_path, require_absent
from litebert.hub.fetch import pull
from litebert.hub.names import HubName, looks_local
from litebert.runs import is_run


def locate(name_or_path: str | Path, *, legacy_pickle: bool = False) -> Path:
    """Return a model's folder: the named one, a run's, or a Hub name's, fetched if needed.

    A path whose first folder exists is never looked up on the Hub. `legacy_pickle` also accepts
    pytorch_model.bin from repositories that have nothing else.

    Raises:
        LitebertError: LB-620, there is no such folder; LB-621 to LB-634, it could not be fetched.
    """
    path = as_path(name_or_path, "a model")
    found = _found(path)
    if found == "a folder":
        return path / "model" if is_run(path) else path
    name = HubName.parse(str(name_or_path))
    is_path = looks_local(str(path)) or Path(name.repository).parent.is_dir() if name else True
    if name is None or is_path or found != "nothing":
        raise LitebertError(
            "LB-620",
            f"there is no model folder {str(path)[:200]!r}",
            received=found,
            expected=f"a folder{_similar(path)}; or a name on the Hub, such as albert/albert-base-v2",
            next=_next(path),
        )
    return pull(name, legacy_pickle=legacy_pickle)


def require_new(folder: Path) -> None:
    """Check that a folder is new or empty.

    Raises:
        LitebertError: LB-638, it is a file, or a folder with something in it.
    """
    require_absent(
        "LB-638",
        f"{folder} exists already",
        folder,
        expected="a new folder",
        next="choose another --output",
        or_empty=True,
    )


def _found(path: Path) -> str:
    """Describe what is at a path, or why it cannot be read."""
    try:
        return "a folder" if path.is_dir() else "a file" if path.exists() else "nothing"
    except OSError as error:
        return error.strerror or str(error)


def _next(path: Path) -> str:
    """Suggest the run or model of this name in the usual folders, if there is one."""
    for folder in (Path("runs"), Path("models")):
        if len(path.parts) == 1 and _found(folder / path) == "a folder":
            return f"--model {folder / path}"
    return f"ls {_existing_parent(path)}"


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if _found(parent) == "a folder")


def _similar(path: Path) -> str:
    """Suggest a folder with a similar name, if there is one."""
    parent = _existing_parent(path)
    missing = path.absolute().relative_to(parent).parts[0]
    with suppress(OSError):
        hint = did_you_mean(missing, [entry.name for entry in parent.iterdir() if entry.is_dir()])
        return f" ({hint})" if hint.startswith("did") else ""
    return ""
