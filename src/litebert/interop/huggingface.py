"""Convert models in Hugging Face's layout, of any year, to a model folder."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError, NoVocabularyError
from litebert.files import Json, require_new, staged_folder
from litebert.folder import config as settings
from litebert.folder.model import LoadedModel, build_network, head_of, save_model
from litebert.folder.names import BERT
from litebert.folder.weights import INDEX_FILE, read_weights, weights_path
from litebert.hub.transfer import locate
from litebert.interop.reports import ModelImport
from litebert.tokenizer import Tokenizer

PICKLED_FILE = "pytorch_model.bin"
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
) -> ModelImport:
    """Read a folder or a model of the Hub, and write config.json, safetensors and the tokenizer.

    `legacy_pickle` allows pytorch_model.bin where there is no safetensors file; `activation` and `heads` overrule its
    config.json, where that is known to be wrong.
    """
    require_new(output, force=None)
    source = locate(path_or_name, legacy_pickle=legacy_pickle)
    layout, config = settings.read_layout(source)

    pickled = source / PICKLED_FILE
    if not pickled.is_file() or weights_path(source).is_file() or (source / INDEX_FILE).is_file():
        tensors = read_weights(source)
    elif legacy_pickle:
        tensors = read_torch_file(pickled)
    else:
        what, again = f"{pickled} is a pickle, and pickles can carry programs", f"litebert import huggingface {source}"
        expected = "model.safetensors; with --legacy-pickle nothing in it is run, and all but tensors is refused"
        raise LitebertError("LB-742", what, expected=expected, next=f"{again} --output FOLDER --legacy-pickle")
    overruled: dict[str, Json] = {"hidden_act": activation, "num_attention_heads": heads}
    changes = {name: value for name, value in overruled.items() if value is not None}
    config = settings.build_config(config.model_dump() | changes, source / settings.CONFIG_FILE)
    loaded = build_network(tensors, config, settings.read_head(source), source=source, layout=layout)

    # What is missing and what is doubtful; what the user has settled with an option is no doubt any more
    notes = [_WITHOUT[part] for part in sorted({name.split(".")[0] for name in loaded.missing})]
    notes += [note for name, note in settings.doubts(config).items() if name not in changes]
    notes += loaded.notes if layout is BERT else ()
    with staged_folder(output) as staged:
        save_model(loaded.network, staged)
        try:
            notes += copy_tokenizer(source, staged, config)
        except NoVocabularyError as error:
            notes.append(f"{error.what}: add spiece.model or vocab.txt to work on texts")
        if vectors := settings.read_sentence_vectors(source):
            settings.write_sentence_transformers(staged, **asdict(vectors))
    return imported(source, output, loaded, notes)


def copy_tokenizer(source: Path, folder: Path, config: AlbertConfig) -> list[str]:
    """Write the tokenizer at `source` into a model folder; return a note if it does not fit."""
    tokenizer = Tokenizer.load(source)
    tokenizer.save(folder, max_length=config.max_position_embeddings)
    fits = tokenizer.vocab_size == config.vocab_size
    return [] if fits else [f"the tokenizer has {tokenizer.vocab_size:,} pieces, the network {config.vocab_size:,}"]


def imported(source: Path, output: Path, loaded: LoadedModel, notes: Iterable[str]) -> ModelImport:
    """Report the import of a network."""
    parameters = {name: each for name, each in loaded.network.state_dict().items() if name not in loaded.missing}
    return ModelImport(
        source=str(source),
        output=str(output),
        architecture=settings.architecture(head_of(loaded.network), parameters),
        num_parameters=sum(each.numel() for each in parameters.values()),
        optimizer_step=None,
        missing=tuple(sorted(loaded.missing)),
        unused=loaded.unused,
        notes=tuple(notes),
    )


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Read a state dict of torch.save, a zip archive or the older stream; nothing in it is run.

    torch itself trusts the sizes in a file and checks no checksum: what is compressed, larger than the file or damaged
    is refused here.
    """
    size, asked = path.stat().st_size, ""
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
        found = re.search(r"GLOBAL \S+|operand \d+", str(error))  # its text is long, and advises to run the file
        state, asked = {}, found[0] if found else "another pickle"
    state = state if isinstance(state, dict) else {}
    strange = sorted(str(name) for name, each in state.items() if not (isinstance(name, str) and _is_whole(each)))
    storages = {} if strange else {name: each.untyped_storage() for name, each in state.items()}
    stored = sum({each.data_ptr(): each.nbytes() for each in storages.values()}.values())  # tensors may share one
    if storages and stored <= size:
        return {name: each.detach() for name, each in state.items()}
    raise LitebertError(
        "LB-730",
        f"{path} contains more than a state dict of tensors; nothing in it was run",
        received=asked or (f"other things than tensors, or larger ones: {strange}" if state else "no dictionary"),
        expected="one dictionary of tensors, as torch.save(model.state_dict(), path) writes it",
        next="save the state dict alone, or use the safetensors file of the same model",
    )


def _is_whole(value: object) -> bool:
    """Whether a value is a tensor of the usual kind that does not reach beyond its storage."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized or value.is_meta:
        return False
    return value.numel() * value.itemsize <= value.untyped_storage().nbytes()
