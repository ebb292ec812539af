"""Find a checkpoint: its prefix, and the configuration and the vocabulary beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from litebert.errors import LitebertError
from litebert.interop.google.table import is_table
from litebert.interop.unpack import is_archive, unpack

_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STATE = re.compile(r'^model_checkpoint_path:\s*"([^"]*)"', re.MULTILINE)
_STATE_LIMIT = 1 << 20
_CONFIGS = ("albert_config.json", "albert_config*.json", "bert_config*.json")
_VOCABULARIES = ("30k-clean.model", "spiece.model", "*.model", "vocab.txt", "vocab*.txt")
_HELP = "litebert import google --help"


@contextmanager
def checkpoint_at(path: Path, *, workplace: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the prefix of the checkpoint at a path, and notes about the choice.

    The path may be an archive, which is unpacked in `workplace` until the end of the block, a
    folder, a prefix, or one of the checkpoint's files.
    """
    if path.is_file() and not _PART.search(path.name) and is_archive(path):
        workplace.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".unpacked-", dir=workplace) as folder:
            unpack(path, Path(folder))
            yield _in_folder(Path(folder), path)
    elif path.is_dir():
        yield _in_folder(path, path)
    else:
        yield _prefix(path), []


def find_config(prefix: Path) -> Path:
    """Return the configuration next to a checkpoint, or in its module's assets."""
    found = _beside(prefix, _CONFIGS)
    if found is None:
        raise LitebertError(
            "LB-715",
            "there is no albert_config.json with the checkpoint",
            received=f"none in {' or '.join(str(folder) for folder in _folders(prefix))}",
            expected="the albert_config.json that belongs to it; shapes do not show the heads",
            next="put it there, or give it with --config FILE",
        )
    return found


def find_vocabulary(prefix: Path) -> Path | None:
    """Return the SentencePiece model or WordPiece vocabulary next to a checkpoint."""
    return _beside(prefix, _VOCABULARIES)


def _beside(prefix: Path, patterns: tuple[str, ...]) -> Path | None:
    for pattern in patterns:
        for folder in _folders(prefix):
            if found := sorted(path for path in folder.glob(pattern) if path.is_file()):
                return found[0]
    return None


def _folders(prefix: Path) -> list[Path]:
    """Return where a checkpoint's companions may be; a TF-Hub module keeps them in assets."""
    folder = prefix.parent
    module = folder.parent if folder.name == "variables" else folder
    return [each for each in (folder, module, module / "assets") if each.is_dir()]


def _in_folder(folder: Path, given: Path) -> tuple[Path, list[str]]:
    """Find the checkpoint in a folder, or in the one folder below that has any."""
    for pattern in ("*.index", "*/*.index", "*/*/*.index"):
        found = sorted(path.with_suffix("") for path in folder.glob(pattern) if path.is_file())
        if found:
            return _chosen(found, given)
    for path in folder.glob("*ckpt*"):
        _require_second_version(path)
    raise _none_there(given, "a folder without *.index")


def _chosen(found: list[Path], given: Path) -> tuple[Path, list[str]]:
    """Return the only checkpoint, or the one that the `checkpoint` file beside them names."""
    if len(found) == 1:
        return found[0], []
    state = found[0].with_name("checkpoint")
    named = ""
    if state.is_file() and state.stat().st_size <= _STATE_LIMIT:
        match = _STATE.search(state.read_text("utf-8", "replace"))
        named = match[1].rpartition("/")[2] if match else ""
    for prefix in found:
        if prefix.name == named:
            others = ", ".join(each.name for each in found if each != prefix)
            return prefix, [f"took {named}, which the file `checkpoint` names; also there: {others}"]
    raise LitebertError(
        "LB-716",
        f"{given} has more than one checkpoint",
        received=", ".join(prefix.name for prefix in found[:8]),
        expected="one, or a file `checkpoint` that names one of them",
        next=f"litebert import google {found[-1]} --output FOLDER",
    )


def _prefix(path: Path) -> Path:
    """Return a path if it is a prefix, or the prefix of the file at this path."""
    prefix = path.with_name(_PART.sub("", path.name))
    if prefix.with_name(f"{prefix.name}.index").is_file():
        return prefix
    if path.is_file():
        _require_second_version(path)
        raise _none_there(path, "a file that is none")
    raise _none_there(path, f"no {prefix.name}.index")


def _require_second_version(path: Path) -> None:
    if not path.is_file() or path.stat().st_size < 8:
        return
    with path.open("rb") as file:
        file.seek(-8, 2)
        end = file.read()
    if is_table(end):
        raise LitebertError(
            "LB-717",
            f"{path} is a checkpoint of version 1, a single file",
            received="the format before TensorFlow 1.0",
            expected="version 2: an .index file and .data files",
            next="restore it with TensorFlow and save it with tf.train.Saver()",
        )


def _none_there(path: Path, received: str) -> LitebertError:
    return LitebertError(
        "LB-718",
        f"there is no TensorFlow checkpoint at {path}",
        received=received if path.exists() else f"{received}; no such path",
        expected="a .tar.gz, a folder with *.index, a prefix such as model.ckpt-best",
        next=f"{_HELP}; unpack a .zip yourself and give its folder",
    )
