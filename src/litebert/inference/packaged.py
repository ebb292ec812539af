"""The model that comes with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from litebert.errors import LitebertError
from litebert.hub import locate

PACKAGED = "the one that comes with litebert"
"""The name of the packaged model in messages."""


def model_folder(path: str | Path | None) -> Path:
    """Return the folder of a model: the packaged one, or what `path` names."""
    return packaged_model() if path is None else locate(path)


def packaged_model() -> Path:
    """Return the folder of the model inside the package.

    Raises:
        LitebertError: LB-938, this build has none.
    """
    folder = Path(str(files("litebert") / "model"))
    if not (folder / "config.json").is_file():
        raise LitebertError(
            "LB-938",
            "no model comes with this build of litebert",
            received="no model named",
            expected="a model folder, a run, or a name on the Hub",
            next="name a model: litebert embed --model FOLDER, or litebert serve FOLDER",
        )
    return folder
