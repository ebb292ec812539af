"""How texts become vectors: the files that sentence-transformers writes beside a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_capped, read_json, write_json

Pooling: TypeAlias = Literal["mean", "cls", "max"]
MODULES_FILE = "modules.json"
_SETTINGS_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
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


@dataclass(frozen=True)
class SentenceVectors:
    """How hidden states become one vector per text; the defaults are those of a plain model."""

    pooling: Pooling = "mean"
    normalize: bool = False
    max_length: int | None = None  # in pieces; unset, only the network's positions limit texts
    prompt: str = ""  # put before every text


def read_sentence_vectors(folder: Path) -> SentenceVectors | None:
    """Read what sentence-transformers wrote beside a model; None if there is nothing."""
    path = folder / MODULES_FILE
    if not path.is_file():
        return None
    try:
        listed = json.loads(read_capped(path, _LIMIT, command=f"ls {folder}"))
        places = {str(each["type"]).rpartition(".")[2]: str(each["path"]) for each in listed}
        for place in places.values():
            if place and (Path(place).name != place or place == ".." or "\0" in place):
                raise ValueError(f"{place!r} is no folder inside the model folder")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        next_step = "fetch the model again, or delete the file to use the encoder alone"
        raise DamagedError("LB-673", f"{path} cannot be used", received=error, next=next_step) from error

    files = (folder / name for name in (_SETTINGS_FILE, _PROMPTS_FILE, "tokenizer_config.json"))
    settings, prompts, tokenizer = (
        read_json(file, command=f"ls {folder}", limit=_LIMIT) if file.is_file() else {} for file in files
    )
    kinds, unknown, modes = list(places), "", ["mean"]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or len(kinds) < len(listed):
        unknown = f"the modules {', '.join(kinds)}"
    elif places["Transformer"]:
        unknown = f"a network in the folder {places['Transformer']}"
    elif settings.get("do_lower_case") and tokenizer.get("do_lower_case") is False:
        unknown = "do_lower_case before a tokenizer that keeps capitals"
    else:
        pooling = read_json(folder / places["Pooling"] / "config.json", command=f"ls {folder}", limit=_LIMIT)
        written = pooling.get("pooling_mode")
        chosen = written if isinstance(written, list) else [written] if written else []
        modes = [*map(str, chosen)] or [mode for name, mode in _SWITCHES.items() if pooling.get(name)] or modes
        if modes not in [[mode] for mode in get_args(Pooling)]:
            unknown = f"pooling {' and '.join(modes)}"
    if unknown:
        what, expected = (
            f"{path} describes vectors that litebert does not compute",
            "Transformer, Pooling (mean, cls, max), Normalize",
        )
        next_step = f"to use the encoder alone, delete {path}"
        raise LitebertError("LB-672", what, received=unknown, expected=expected, next=next_step)
    longest = settings.get("max_seq_length") or tokenizer.get("model_max_length")
    known, default = prompts.get("prompts"), str(prompts.get("default_prompt_name") or "")
    return SentenceVectors(
        pooling=cast(Pooling, modes[0]),
        normalize="Normalize" in kinds,
        max_length=longest if isinstance(longest, int) and 0 < longest <= _LIMIT else None,
        prompt=str(known.get(default) or "") if isinstance(known, dict) else "",
    )


def write_sentence_transformers(
    folder: Path, *, pooling: Pooling = "mean", normalize: bool = True, max_length: int | None = None, prompt: str = ""
) -> None:
    """Write the files that let `SentenceTransformer(folder)`, since 2.0, open a model folder with the same vectors."""
    config = read_json(folder / "config.json", command=f"ls {folder}")
    paths = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if normalize else {})
    switches: dict[str, Json] = {name: mode == pooling for name, mode in _SWITCHES.items()}
    write_json(
        folder / paths["Pooling"] / "config.json", {"word_embedding_dimension": config["hidden_size"], **switches}
    )
    longest = max_length or config["max_position_embeddings"]
    write_json(folder / _SETTINGS_FILE, {"max_seq_length": longest, "do_lower_case": False})
    prompts: dict[str, Json] = {"default": prompt} if prompt else {}
    default = "default" if prompts else None
    about: dict[str, Json] = {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "cosine"}
    write_json(folder / _PROMPTS_FILE, about)
    modules: list[Json] = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(paths.items())
    ]
    write_json(folder / MODULES_FILE, modules)  # last: without it, the others are not read
