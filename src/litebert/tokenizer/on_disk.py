"""The vocabulary on disk: find it in a folder or a run, with the rules of reading beside
it, and compare it with others in its folder.
"""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from litebert import files
from litebert.errors import LitebertError, NoVocabularyError
from litebert.tokenizer.model_file import MAX_MODEL_BYTES
from litebert.tokenizer.text import Normalizer
from litebert.tokenizer.tokenizer_json import (
    VocabularyFile,
    as_bert,
    read_added,
    read_tokenizer_json,
)

CONFIG_FILE = "tokenizer_config.json"
PIPELINE_FILE = "tokenizer.json"
UNIGRAM_FILE = "spiece.model"
WORDPIECE_FILE = "vocab.txt"
# the first of these that a folder has is used
_VOCABULARIES = (UNIGRAM_FILE, WORDPIECE_FILE, PIPELINE_FILE)
TOKENIZER_FILES = (*_VOCABULARIES, CONFIG_FILE)
"""The names of all files that `Tokenizer.save` writes into a folder."""


def read_vocabulary(path: Path) -> VocabularyFile:
    """Read the vocabulary at a path (a file, a folder or a run) with the settings next
    to it.
    """
    file = _find_vocabulary(path)
    if file.name == PIPELINE_FILE:
        vocabulary = read_tokenizer_json(file)
    else:
        data = files.read_capped(file, MAX_MODEL_BYTES)
        added = read_added(file.parent) if path.is_dir() else ()
        vocabulary = VocabularyFile(file, file.suffix, data, Normalizer(), added)
    config = file.with_name(CONFIG_FILE)
    if not config.exists():
        return vocabulary
    settings = _read_settings(config, vocabulary)
    return vocabulary._replace(settings=settings)


def _find_vocabulary(path: Path) -> Path:
    """Return the file that a path names, or the first vocabulary in a folder or in the
    model of a run; raise LB-213 if there is none.
    """
    is_folder = path.is_dir()
    if is_folder:
        for folder in (path, path / "model"):
            for name in _VOCABULARIES:
                if (folder / name).is_file():
                    return folder / name
    elif path.suffix in (".model", ".txt"):
        return path
    received = "a path that is not one"
    folder = path.parent
    if is_folder:
        received = "a folder without a vocabulary"
        folder = path
    names = ", ".join(_VOCABULARIES)
    raise NoVocabularyError(
        "LB-213",
        f"no tokenizer at {path}",
        received=received,
        expected=f"a folder with one of {names}; a *.model or a *.txt file",
        next=f"ls -l {quote(str(folder))}",
    )


def _read_settings(config: Path, vocabulary: VocabularyFile) -> Normalizer:
    """Return the rules of reading in a `tokenizer_config.json`; what it leaves out is as
    in the vocabulary's own.
    """
    values = files.read_json(config)
    defaults = vocabulary.settings
    normalizer = Normalizer(
        _read_switch(values, "do_lower_case", defaults.lowercase, config),
        _read_switch(values, "keep_accents", defaults.keep_accents, config),
    )
    if vocabulary.suffix != ".txt":
        return normalizer
    # two settings that only BERT's vocabularies have
    strip_accents = values.get("strip_accents")
    splits_chinese = values.get("tokenize_chinese_chars")
    return as_bert(normalizer, config, strip_accents, splits_chinese)


def _read_switch(
    values: dict[str, files.Json], key: str, default: bool, config: Path
) -> bool:
    """Return a setting that is true or false; raise LB-214 if it is anything else."""
    value = values.get(key)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    raise LitebertError(
        "LB-214",
        f"{key} in {config} cannot be used",
        received=value,
        expected="true or false",
        next=f"correct {key} in {config}, or delete it for {default}",
    )


# ---- other vocabularies in the same folder -------------------------------------------


def find_other_vocabulary(folder: Path, pieces: Sequence[str]) -> str | None:
    """Say which vocabulary in a folder has other pieces than those that are used; None
    if there is none.

    Published folders often have the same pieces in several files. Special pieces, and
    what was added at the end, may have other names there.
    """
    places = [folder / name for name in _VOCABULARIES]
    vocabularies = [place for place in places if place.is_file()]
    for path in vocabularies[1:]:  # the first one is used
        try:
            listed = _listed_pieces(path)
        except (LitebertError, UnicodeDecodeError, TypeError, ValueError, LookupError):
            return f"{path.name} cannot be read"
        for id_, (piece, other) in enumerate(zip(pieces, listed, strict=False)):
            is_special = other[:1] in ("[", "<") or piece[:1] in ("[", "<")
            if piece != other and not is_special:
                return f"in {path.name}, piece {id_:,} is {other!r}, not {piece!r}"
    return None


def _listed_pieces(path: Path) -> list[str]:
    """Return the pieces of a vocab.txt or a tokenizer.json by id."""
    if path.name != PIPELINE_FILE:
        data = files.read_capped(path, MAX_MODEL_BYTES)
        return data.decode("utf-8").splitlines()
    table: Any = files.read_json(path, limit=MAX_MODEL_BYTES)
    vocabulary = table["model"]["vocab"]
    if isinstance(vocabulary, dict):  # WordPiece: the id of each piece
        return sorted(vocabulary, key=lambda piece: int(vocabulary[piece]))
    return [str(piece) for piece, _ in vocabulary]  # Unigram: with its score
