"""Fetch the files of a model from the Hub into the cache of huggingface_hub."""

from __future__ import annotations

from pathlib import Path

from litebert.errors import LitebertError
from litebert.hub.names import HubName
from litebert.hub.remote import PATIENCE, request, run

MODEL_FILES = (
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "spiece.model",
    "*.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "README.md",
    # The files of sentence-transformers.
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/config.json",
)
_PICKLED_FILES = ("pytorch_model*.bin", "pytorch_model.bin.index.json")


def pull(name: HubName, *, legacy_pickle: bool = False, patience: float = PATIENCE) -> Path:
    """Fetch a model into the cache of huggingface_hub, or find it there, and return its folder.

    Raises:
        LitebertError: LB-621 to LB-634; see `locate`.
    """
    folder = _fetch(name, MODEL_FILES, patience)
    if any(folder.glob("*.safetensors")):
        return folder
    if legacy_pickle:
        folder = _fetch(name, (*MODEL_FILES, *_PICKLED_FILES), patience)
        if any(folder.glob("*.bin")):
            return folder
    listed = run(request("list", name), patience)["files"]
    names = list(map(str, listed)) if isinstance(listed, list) else []
    pickled = [file for file in names if file.endswith(".bin") and "/" not in file]
    raise LitebertError(
        "LB-634",
        f"{name.repository} has no weights that litebert reads by default",
        received=", ".join((pickled or names)[:5]) or "no files",
        expected="model.safetensors; pickles (.bin) can contain programs, and are read only on "
        "request, by a reader that runs no code",
        next=f"litebert import huggingface {name.repository} --output FOLDER --legacy-pickle"
        if pickled
        else "choose another model",
    )


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model by name; other files in its folder are skipped."""
    found = {path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    return {path.relative_to(folder).as_posix(): path for path in sorted(found)}


def _fetch(name: HubName, patterns: tuple[str, ...], patience: float) -> Path:
    wanted = request("fetch", name)
    wanted["patterns"] = list(patterns)
    return Path(str(run(wanted, patience)["folder"]))
