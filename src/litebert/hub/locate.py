"""Models by name: which local folder is meant, or which repository of the Hub."""

import re
from contextlib import suppress
from importlib.resources import files as package_files
from os import PathLike
from pathlib import Path
from shlex import quote

from litebert.errors import LitebertError, did_you_mean
from litebert.files import as_path
from litebert.hub.transfer import pull
from litebert.runs import RunFolder, is_run

# the model that comes with the package; a local folder of this name takes precedence
PACKAGED_NAME = "litebert"
PACKAGED = "the packaged model"  # in messages

# OWNER/NAME, then perhaps @REVISION
_NAME = re.compile(r"([a-zA-Z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
# the owners of well-known models, by the beginning of the models' names
_OWNERS = {"albert-": "albert", "bert-": "google-bert"}

# Usual names in local paths, which no owner and no model on the Hub has: of the first
# folder, of the last one, and the suffixes of files.
_LOCAL_FOLDERS = {
    *("runs", "models", "model", "checkpoints"),
    *("output", "outputs", "out", "data", "tmp"),
}
_LOCAL_MODELS = {"model", "best", "checkpoints"}
_LOCAL_SUFFIXES = {".json", ".safetensors"}


def parse_name(text: str) -> tuple[str, str | None]:
    """Return the repository OWNER/NAME and, if one is named after an @, its branch, tag
    or commit.

    >>> parse_name("albert/albert-base-v2@main")
    ('albert/albert-base-v2', 'main')
    """
    name = _NAME.fullmatch(text)
    if name is None:
        raise LitebertError(
            "LB-636",
            "this is not the name of a model on the Hub",
            received=text,
            expected="OWNER/NAME, or OWNER/NAME@REVISION",
        )
    return name[1], name[2]


def packaged_model() -> Path:
    """Return the folder of the model that comes with the package."""
    return Path(str(package_files("litebert") / "model"))


def name_of_model(folder: str) -> str:
    """Return what names a model in a command: its folder, or its name if it is the
    packaged one.
    """
    return PACKAGED_NAME if Path(folder) == packaged_model() else folder


def locate(name_or_path: str | PathLike[str], *, legacy_pickle: bool = False) -> Path:
    """Return a model's folder: the named one, a run's, the packaged one, or one fetched
    from the Hub (`pull`).

    A path whose first folder exists, and one that looks local (runs/mine, mine/model),
    is never looked up on the Hub.
    """
    path = as_path(name_or_path, "a model")
    text = str(name_or_path)
    kind = _describe_path(path)
    if kind == "a folder":
        # Run.of refuses a folder of several seeds
        is_of_run = RunFolder.of(path) is not None and is_run(path)
        return path / "model" if is_of_run else path
    if kind == "nothing" and text == PACKAGED_NAME:
        return packaged_model()
    if kind == "nothing" and _NAME.fullmatch(text):
        repository, revision = parse_name(text)
        if not _looks_local(Path(repository)):
            return pull(repository, revision, legacy_pickle=legacy_pickle)
    raise _no_such_model(path, text, kind)


def _describe_path(path: Path) -> str:
    """Describe what is at a path, or why it cannot be read."""
    try:
        if path.is_dir():
            return "a folder"
        return "a file" if path.exists() else "nothing"
    except OSError as error:
        return error.strerror or str(error)


def _looks_local(path: Path) -> bool:
    """Return whether OWNER/NAME is probably a local path with a mistake, not a name on
    the Hub.
    """
    has_local_end = path.name in _LOCAL_MODELS or path.suffix in _LOCAL_SUFFIXES
    return has_local_end or path.parts[0] in _LOCAL_FOLDERS or path.parent.is_dir()


def _no_such_model(path: Path, text: str, kind: str) -> LitebertError:
    expected = "a run, a model folder, or a name on the Hub such as"
    expected += " albert/albert-base-v2"
    if kind == "nothing" and "/" not in text:
        expected += "; names on the Hub have an owner: OWNER/NAME"
    received = "no such folder" if kind == "nothing" else kind
    return LitebertError(
        "LB-620",
        f"there is no model in {text[:200]!r}",
        received=received,
        expected=expected,
        next=_probable_model(path, text),
    )


def _probable_model(path: Path, text: str) -> str:
    """Return where the user may find the model: among the runs and models, on the Hub,
    in a folder with a similar name, or else in the last folder of the path that exists.
    """
    for usual in (Path("runs") / path, Path("models") / path):
        if _describe_path(usual) == "a folder":
            return f"--model {quote(str(usual))}"
    for beginning, owner in _OWNERS.items():
        if text.startswith(beginning) and _NAME.fullmatch(f"{owner}/{text}"):
            return f"--model {owner}/{text}"

    full = path.absolute()
    parents = [place for place in full.parents if _describe_path(place) == "a folder"]
    nearest = parents[0]
    missing = full.relative_to(nearest).parts[0]
    folders = list[str]()
    with suppress(OSError):
        folders = [entry.name for entry in nearest.iterdir() if entry.is_dir()]
    hint = did_you_mean(missing, folders)
    if hint.startswith("did"):
        return f"look at the name again ({hint})"
    return f"ls {quote(str(nearest))}"
