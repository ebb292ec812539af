"""How texts become vectors: the files that sentence-transformers writes beside a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_capped, read_json, write_json

Pooling: TypeAlias = Literal["mean", "cls", "max"]
MODULES_FILE = "modules.json"
_SETTINGS_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_TOKENIZER_FILE = "tokenizer_config.json"
_LIMIT = 1 << 20
# Before version 6, sentence-transformers wrote one switch per pooling.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_CLASSES = {
    "Transformer": "sentence_transformers.models.Transformer",
    "Pooling": "sentence_transformers.models.Pooling",
    "Normalize": "sentence_transformers.models.Normalize",
}


@dataclass(frozen=True)
class SentenceVectors:
    """How hidden states become one vector per text; the defaults are those of a plain model.

    `max_length` cuts texts to that many pieces; unset, only the network's positions limit them.
    `prompt` is put before every text.
    """

    pooling: Pooling = "mean"
    normalize: bool = False
    max_length: int | None = None
    prompt: str = ""


def read_sentence_vectors(folder: Path) -> SentenceVectors | None:
    """Read what sentence-transformers wrote beside a model; None if there is nothing."""
    if not (folder / MODULES_FILE).is_file():
        return None
    modules = list(_modules(folder))
    kinds = [kind for kind, _ in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _unknown(folder, f"the modules {', '.join(kinds)}")
    if modules[0][1]:
        raise _unknown(folder, f"a network in the folder {modules[0][1]}")
    settings, prompts = _optional(folder / _SETTINGS_FILE), _optional(folder / _PROMPTS_FILE)
    tokenizer = _optional(folder / _TOKENIZER_FILE)
    if settings.get("do_lower_case") and tokenizer.get("do_lower_case") is False:
        raise _unknown(folder, "do_lower_case before a tokenizer that keeps capitals")
    longest = settings.get("max_seq_length") or tokenizer.get("model_max_length")
    known, default = prompts.get("prompts"), str(prompts.get("default_prompt_name") or "")
    return SentenceVectors(
        pooling=_pooling(folder, modules[1][1]),
        normalize="Normalize" in kinds,
        max_length=longest if isinstance(longest, int) and 0 < longest <= 1 << 20 else None,
        prompt=str(known.get(default) or "") if isinstance(known, dict) else "",
    )


def write_sentence_transformers(
    folder: Path, *, pooling: Pooling = "mean", normalize: bool = True, max_length: int | None = None, prompt: str = ""
) -> None:
    """Write the files that let `SentenceTransformer(folder)` open a model folder.

    Its vectors are then those of `litebert.load(folder).embed(texts)`. Every version of
    sentence-transformers since 2.0 reads these files.
    """
    config = read_json(folder / "config.json", command=f"ls {folder}")
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    modules: list[Json] = [
        {"idx": number, "name": str(number), "path": path, "type": _CLASSES[kind]}
        for number, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    switches: dict[str, Json] = {name: mode == pooling for name, mode in _SWITCHES.items()}
    write_json(folder / paths[1] / "config.json", {"word_embedding_dimension": config["hidden_size"], **switches})
    longest = max_length or config["max_position_embeddings"]
    write_json(folder / _SETTINGS_FILE, {"max_seq_length": longest, "do_lower_case": False})
    prompts: dict[str, Json] = {"default": prompt} if prompt else {}
    write_json(
        folder / _PROMPTS_FILE,
        {"prompts": prompts, "default_prompt_name": "default" if prompts else None, "similarity_fn_name": "cosine"},
    )
    # Written last: without it, the others are not read.
    write_json(folder / MODULES_FILE, modules)


def _modules(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the class and the folder of each module."""
    path = folder / MODULES_FILE
    try:
        listed = json.loads(read_capped(path, _LIMIT, command=f"ls {folder}"))
        modules = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in listed]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _damaged(path, str(error), "a list of modules, each with a type and a path") from error
    for kind, place in modules:
        if place and (Path(place).name != place or place == ".." or "\0" in place):
            raise _damaged(path, place, "folders inside the model folder")
        yield kind, place


def _pooling(folder: Path, name: str) -> Pooling:
    path = folder / name / "config.json"
    table = read_json(path, command=f"ls {folder / name}", limit=_LIMIT)
    written = table.get("pooling_mode")
    chosen = written if isinstance(written, list) else [written] if written else []
    modes = chosen or [mode for name, mode in _SWITCHES.items() if table.get(name)] or ["mean"]
    known: tuple[Pooling, ...] = get_args(Pooling)
    for mode in known:
        if modes == [mode]:
            return mode
    raise _unknown(folder, f"pooling {' and '.join(map(str, modes))}")


def _optional(path: Path) -> dict[str, Json]:
    return read_json(path, command=f"ls {path.parent}", limit=_LIMIT) if path.is_file() else {}


def _unknown(folder: Path, received: str) -> LitebertError:
    return LitebertError(
        "LB-672",
        f"{folder / MODULES_FILE} describes vectors that litebert does not compute",
        received=received,
        expected="Transformer, Pooling (mean, cls or max) and, optionally, Normalize",
        next=f"to use the encoder alone, delete {folder / MODULES_FILE}",
    )


def _damaged(path: Path, received: str, expected: str) -> DamagedError:
    return DamagedError(
        "LB-673",
        f"{path} cannot be used",
        received=received,
        expected=expected,
        next="fetch the model again, or delete the file to use the encoder alone",
    )
