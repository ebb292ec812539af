"""Convert models in Hugging Face's layout, of any year, to a model folder."""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from litebert.errors import DamagedError, LitebertError, NoVocabularyError
from litebert.files import Json, require_new, staged_folder
from litebert.folder.config import (
    CONFIG_FILE,
    architecture,
    build_config,
    doubts,
    read_head,
    read_layout,
    read_sentence_vectors,
    write_sentence_transformers,
)
from litebert.folder.model import build_network, save_model
from litebert.folder.names import BERT
from litebert.folder.weights import INDEX_FILE, read_weights, shard_names, weights_path
from litebert.hub.transfer import locate
from litebert.interop.reports import ModelImport
from litebert.tokenizer import Tokenizer

PICKLED_FILE = "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_WITHOUT = {
    "sentence_order": "no sentence-order head (files of the Hub come without it): no order()",
    "masked_lm": "no masked-LM head: no fill()",
    "albert": "no pooler: no order(), and training starts with a new one",
}


def import_model(
    path_or_name: str | Path,
    output: Path,
    *,
    legacy_pickle: bool = False,
    activation: Literal["gelu", "gelu_new"] | None = None,
    heads: int | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
) -> ModelImport:
    """Read a folder or a model of the Hub, and write config.json, safetensors and the tokenizer.

    `legacy_pickle` allows pytorch_model.bin where there is no safetensors file; `activation` and `heads` overrule its
    config.json, where that is known to be wrong.
    """
    require_new(output, force=None)
    source = locate(path_or_name, legacy_pickle=legacy_pickle)
    layout, config = read_layout(source)

    # Safetensors; or, where there are none, pickled weights, in shards or not
    pickled = [source / PICKLED_FILE] if (source / PICKLED_FILE).is_file() else []
    if not pickled and (source / PICKLED_INDEX).is_file():
        pickled = [source / name for name in shard_names(source / PICKLED_INDEX)]
    if not pickled or weights_path(source).is_file() or (source / INDEX_FILE).is_file():
        tensors = read_weights(source)
    elif legacy_pickle:
        tensors = {name: tensor for path in pickled for name, tensor in read_torch_file(path).items()}
    else:
        raise LitebertError(
            "LB-742",
            f"the weights in {source} are pickled, and pickles can carry programs",
            received=", ".join(path.name for path in pickled[:3]),
            expected="model.safetensors; with --legacy-pickle nothing in them is run, and all but tensors is refused",
            next=f"litebert import huggingface {source} --output FOLDER --legacy-pickle",
        )
    head = read_head(source, tensors={name: tuple(tensor.shape) for name, tensor in tensors.items()})
    overruled: dict[str, Json] = {"hidden_act": activation, "num_attention_heads": heads}
    changes = {name: value for name, value in overruled.items() if value is not None}
    config = build_config(config.model_dump() | changes, source / CONFIG_FILE)
    loaded = build_network(tensors, config, head, source=source, layout=layout)
    with staged_folder(output) as staged:
        save_model(loaded.network, staged, dtype=getattr(torch, dtype))
        about_tokenizer = []
        try:
            tokenizer = Tokenizer.load(source)
            tokenizer.save(staged, max_length=config.max_position_embeddings)
            if (size := tokenizer.vocab_size) != config.vocab_size:
                about_tokenizer.append(f"the tokenizer has {size:,} pieces, the network {config.vocab_size:,}")
        except NoVocabularyError as error:  # what there is goes along unchanged
            kept = [name for name in _TOKENIZER_FILES if (source / name).is_file()]
            for name in kept:
                shutil.copyfile(source / name, staged / name)
            also = f"; {', '.join(kept)} kept as they are" if kept else ""
            about_tokenizer.append(f"{error.what}{also}: add spiece.model or vocab.txt to work on texts")
        if vectors := read_sentence_vectors(source):
            write_sentence_transformers(staged, **asdict(vectors))
    # What the user has settled with an option is no doubt any more.
    beyond_doubt = {"hidden_act": "gelu_new", "num_attention_heads": 1}
    settled = {name: value for name, value in beyond_doubt.items() if name in changes}
    unsettled = doubts(config.model_copy(update=settled)) + (loaded.notes if layout is BERT else ())
    lacking, parameters = sorted({name.split(".")[0] for name in loaded.missing}), loaded.network.state_dict()
    return ModelImport(
        source=str(source),
        output=str(output),
        architecture=architecture(head, parameters.keys() - loaded.missing),
        num_parameters=sum(parameters[name].numel() for name in parameters.keys() - loaded.missing),
        optimizer_step=None,
        missing=tuple(sorted(loaded.missing)),
        unused=loaded.unused,
        notes=(*(_WITHOUT[part] for part in lacking), *unsettled, *about_tokenizer),
    )


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Read a state dict of torch.save, a zip archive or the older stream; nothing in it is run.

    torch itself trusts the sizes in a file and checks no checksum: what is compressed, larger than the file or damaged
    is refused here.
    """
    size, others = path.stat().st_size, ""
    try:
        with path.open("rb") as file:
            is_archive = file.read(4) == b"PK\x03\x04"
        if is_archive:
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
                is_stored = all(each.compress_type == zipfile.ZIP_STORED for each in entries)
                if not is_stored or sum(each.file_size for each in entries) > size:
                    raise zipfile.BadZipFile("an entry that is not stored as it is")
                if damaged := archive.testzip():
                    raise zipfile.BadZipFile(f"a wrong checksum of {damaged}")
        state = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
    except Exception as error:  # whatever a damaged file makes torch raise
        if type(error).__name__ != "UnpicklingError":
            what, seen = f"{path} is not a complete file of torch.save", str(error) or type(error).__name__
            raise DamagedError("LB-731", what, received=seen, next="fetch or save the file again") from error
        asked = re.search(r"GLOBAL \S+|operand \d+", str(error))  # its text is long, and advises to run the file
        state, others = {}, asked[0] if asked else "another pickle"

    # Tensors of the usual kind under names, none of which reaches beyond its storage, nor all storages beyond the file
    if isinstance(state, dict) and state:
        plain = {
            name: each.detach()
            for name, each in state.items()
            if isinstance(name, str) and isinstance(each, Tensor) and each.layout == torch.strided
            if not (each.is_quantized or each.is_meta)
        }
        storages = {name: each.untyped_storage() for name, each in plain.items()}
        reaching = [name for name, each in plain.items() if each.numel() * each.itemsize > storages[name].nbytes()]
        stored = sum({each.data_ptr(): each.nbytes() for each in storages.values()}.values())
        if len(plain) == len(state) and not reaching and stored <= size:
            return plain
        others = (
            f"other things than tensors, or larger ones: {sorted(map(str, state.keys() - plain.keys())) + reaching}"
        )
    raise LitebertError(
        "LB-730",
        f"{path} contains more than a state dict of tensors; nothing in it was run",
        received=others or "no dictionary of tensors",
        expected="one dictionary of tensors, as torch.save(model.state_dict(), path) writes it",
        next="save the state dict alone, or use the safetensors file of the same model",
    )
