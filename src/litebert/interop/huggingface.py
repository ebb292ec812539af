"""Convert models in Hugging Face's layout, of any year, to a model folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.config.allowed import expected
from litebert.errors import LitebertError, NoVocabularyError
from litebert.fast.finite import require_finite
from litebert.files import read_json, staged_folder
from litebert.folder import (
    LoadedModel,
    build_network,
    read_config,
    read_head,
    read_sentence_vectors,
    read_weights,
    save_model,
    write_sentence_transformers,
)
from litebert.folder.configuration import CONFIG_FILE, read_layout
from litebert.folder.doubts import doubts
from litebert.folder.names import BERT
from litebert.folder.weights import INDEX_FILE, shard_names, weights_path
from litebert.hub import locate, require_new
from litebert.interop.old_names import folded, renamed
from litebert.interop.torchfile import read_torch_file
from litebert.tokenizer import Tokenizer

PICKLED_FILE = "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"
GeluForm = Literal["gelu", "gelu_new"]
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_HEADS = {
    "sentence_order": "no sentence-order head (files of the Hub come without it): no order()",
    "masked_lm": "no masked-LM head: no fill()",
    "albert": "no pooler: no order(), and training starts with a new one",
}


@dataclass(frozen=True)
class HuggingFaceImport:
    """What was read and written: tensors that were missing or not used, by name, and notes."""

    source: Path
    output: Path
    architecture: str
    num_parameters: int
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...]


def import_model(
    path_or_name: str | Path,
    output: Path,
    *,
    legacy_pickle: bool = False,
    activation: GeluForm | None = None,
    heads: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> HuggingFaceImport:
    """Read a folder or a model of the Hub, and write config.json, safetensors and the tokenizer.

    `legacy_pickle` allows pytorch_model.bin where there is no safetensors file; `activation` and
    `heads` overrule its config.json, where that is known to be wrong.

    Raises:
        LitebertError: LB-620 to LB-638, no such source, or the output is there already;
                LB-740 to LB-744, nothing to import.
        DamagedError: Its files are not whole.
    """
    require_new(output)
    source = locate(path_or_name, legacy_pickle=legacy_pickle)
    loaded = _loaded(source, legacy_pickle=legacy_pickle, activation=activation, heads=heads)
    with staged_folder(output) as staged:
        save_model(loaded.network, staged, dtype=dtype)
        about_tokenizer = _write_tokenizer(source, staged, loaded.network.config)
        if vectors := read_sentence_vectors(source):
            write_sentence_transformers(staged, **asdict(vectors))
        written = read_json(staged / CONFIG_FILE, command=f"ls {staged}")
    parameters = [p for p in loaded.network.parameters() if not p.is_meta]
    lacking = {name.split(".")[0] for name in loaded.missing}
    settled: dict[str, object] = {"hidden_act": "gelu_new"} if activation else {}
    settled |= {"num_attention_heads": 1} if heads else {}
    about_bert = loaded.notes if read_layout(source) is BERT else ()
    unsettled = (*doubts(loaded.network.config.model_copy(update=settled)), *about_bert)
    return HuggingFaceImport(
        source=source,
        output=output,
        architecture=str(written["architectures"]).strip("[']"),
        num_parameters=sum(p.numel() for p in parameters),
        missing=tuple(sorted(loaded.missing)),
        unused=loaded.unused,
        notes=(*(_HEADS[part] for part in sorted(lacking)), *unsettled, *about_tokenizer),
    )


def _loaded(source: Path, *, legacy_pickle: bool, activation: GeluForm | None, heads: int | None) -> LoadedModel:
    table = read_json(source / CONFIG_FILE, command=f"ls {source}")
    layout, config = read_layout(source), read_config(source)
    tensors = _tensors(source, legacy_pickle=legacy_pickle)
    if layout is not BERT:
        tensors, config = folded(renamed(tensors), config, norm=table.get("ln_type"), source=source)
    head = read_head(source, tensors={name: tuple(t.shape) for name, t in tensors.items()})
    config = _overruled(config, activation, heads)
    return build_network(dict(tensors), config, head, source=source, layout=layout)


def _tensors(source: Path, *, legacy_pickle: bool) -> Mapping[str, Tensor]:
    pickled = _pickled_files(source)
    has_safetensors = weights_path(source).is_file() or (source / INDEX_FILE).is_file()
    if has_safetensors or not pickled:
        return read_weights(source)
    if not legacy_pickle:
        raise LitebertError(
            "LB-742",
            f"the weights in {source} are pickled, and pickles can carry programs",
            received=", ".join(path.name for path in pickled[:3]),
            expected="model.safetensors, or --legacy-pickle to read these: the reader runs "
            "nothing, builds tensors only and refuses everything else",
            next=f"litebert import huggingface {source} --output FOLDER --legacy-pickle",
        )
    tensors: dict[str, Tensor] = {}
    for path in pickled:
        tensors |= read_torch_file(path)
        require_finite(
            "LB-743",
            f"{path} has weights that are not finite",
            tensors,
            expected="finite weights",
            next="fetch the model again, or take an earlier checkpoint",
        )
    return tensors


def _pickled_files(source: Path) -> list[Path]:
    """Return the pickled weights of a folder, all shards; shards in other folders are refused."""
    if (source / PICKLED_FILE).is_file():
        return [source / PICKLED_FILE]
    index = source / PICKLED_INDEX
    if not index.is_file():
        return []
    names = shard_names(
        "LB-741",
        f"{index} does not list the files of a model",
        index,
        expected="names of files in the same folder",
        next="fetch the model again",
    )
    return [source / name for name in names]


def _overruled(config: AlbertConfig, activation: GeluForm | None, heads: int | None) -> AlbertConfig:
    overrides = {"hidden_act": activation, "num_attention_heads": heads}
    changes = {name: value for name, value in overrides.items() if value is not None}
    try:
        return AlbertConfig.model_validate(config.model_dump() | changes)
    except ValidationError as error:
        raise LitebertError(
            "LB-744",
            "this network cannot be built with these settings",
            received=", ".join(f"{name} {value}" for name, value in changes.items()),
            expected=expected(error, AlbertConfig),
            next="omit --heads and --activation to keep the values of config.json",
        ) from error


def _write_tokenizer(source: Path, staged: Path, config: AlbertConfig) -> list[str]:
    """Write the tokenizer from its vocabulary or, if that is not possible, copy its files."""
    try:
        tokenizer = Tokenizer.load(source)
    except NoVocabularyError as error:
        found = [name for name in _TOKENIZER_FILES if (source / name).is_file()]
        for name in found:
            shutil.copyfile(source / name, staged / name)
        kept = f"; {', '.join(found)} kept as they are" if found else ""
        return [f"{error.what}{kept}: add spiece.model or vocab.txt to work on texts"]
    tokenizer.save(staged, max_length=config.max_position_embeddings)
    if tokenizer.vocab_size == config.vocab_size:
        return []
    return [f"the tokenizer has {tokenizer.vocab_size:,} pieces, the network {config.vocab_size:,}"]
