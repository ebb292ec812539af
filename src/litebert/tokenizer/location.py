"""Find a tokenizer on disk: its vocabulary, and the settings beside it that change ids."""

from __future__ import annotations

from pathlib import Path

from litebert import files
from litebert.errors import LitebertError, NoVocabularyError
from litebert.tokenizer.normalize import Normalizer

CONFIG = "tokenizer_config.json"
PIPELINE = "tokenizer.json"
_VOCABULARIES = ("spiece.model", "vocab.txt", PIPELINE)


def vocabulary_file(path: Path) -> Path:
    """Return the vocabulary file at a path, which is a file, a folder or a run.

    Raises:
        NoVocabularyError: LB-213, there is none.
    """
    if path.is_dir():
        places = [folder / name for folder in (path, path / "model") for name in _VOCABULARIES]
        found = [place for place in places if place.is_file()]
    else:
        found = [path] if path.suffix in (".model", ".txt") else []
    if not found:
        raise NoVocabularyError(
            "LB-213",
            f"no tokenizer at {path}",
            received="a folder without one" if path.is_dir() else "a path that names none",
            expected=f"a folder with one of {', '.join(_VOCABULARIES)}; a *.model or a *.txt file",
            next=f"ls -l {path if path.is_dir() else path.parent}",
        )
    return found[0]


def read_settings(folder: Path, fallback: Normalizer) -> Normalizer:
    """Return the settings of the tokenizer in a folder; unset ones are those of `fallback`.

    Raises:
        LitebertError: LB-214, a setting is neither true nor false.
    """
    path = folder / CONFIG
    if not path.exists():
        return fallback
    config = files.read_json(path, command=f"ls -l {folder}")

    def switch(key: str, default: bool) -> bool:
        value = config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise LitebertError(
                "LB-214",
                f"{key} in {path} cannot be used",
                received=value,
                expected="true or false",
                next=f"correct {key} in {path}, or delete it for {default}",
            )
        return value

    return Normalizer(
        lowercase=switch("do_lower_case", fallback.lowercase),
        keep_accents=switch("keep_accents", fallback.keep_accents),
    )
