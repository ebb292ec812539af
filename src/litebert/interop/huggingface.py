"""Convert models in Hugging Face's layout, of any year, to a model folder."""

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
from litebert.files import require_new, staged_folder
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
) -> ModelImport:
    """Read a folder or a model of the Hub, and write config.json, safetensors and the tokenizer.

    `legacy_pickle` allows pytorch_model.bin where there is no safetensors file; `activation` overrules its config.json,
    where that is known to be wrong.
    """
    require_new(output, force=None)
    source = locate(path_or_name, legacy_pickle=legacy_pickle)
    layout, config = settings.read_layout(source)

    pickled = source / PICKLED_FILE
    if not pickled.is_file() or weights_path(source).is_file() or (source / INDEX_FILE).is_file():
        tensors, _ = read_weights(source)
    elif legacy_pickle:
        tensors = read_torch_file(pickled)
    else:
        what, again = f"{pickled} is a pickle, and pickles can carry programs", f"litebert import huggingface {source}"
        expected = "model.safetensors; with --legacy-pickle nothing in it is run, and all but tensors is refused"
        raise LitebertError("LB-742", what, expected=expected, next=f"{again} --output FOLDER --legacy-pickle")
    if activation is not None:
        config = config.model_copy(update={"hidden_act": activation})
    loaded = build_network(tensors, config, settings.read_head(source), source=source, layout=layout)

    # What is missing and what is doubtful
    notes = [_WITHOUT[part] for part in sorted({name.split(".")[0] for name in loaded.missing})]
    notes += [note for name, note in settings.doubts(config).items() if name != "hidden_act" or activation is None]
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
    """Read a state dict of torch.save, a zip archive or the older stream; nothing in it is run."""
    try:
        if zipfile.is_zipfile(path):  # torch looks at no checksum, and unpacks what it never writes compressed
            with zipfile.ZipFile(path) as archive:
                if any(entry.compress_type for entry in archive.infolist()) or archive.testzip():
                    raise zipfile.BadZipFile("an entry with a wrong checksum, or a compressed one")
        state = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
        if not isinstance(state, dict) or not state or not all(map(_is_whole, state.values())):
            raise ValueError("other things than tensors")
    except Exception as error:  # whatever a damaged or hostile file makes torch raise
        # What was not run, if that is why; else the first words, as torch goes on to advise running the file.
        found = re.search(r"GLOBAL \S+", str(error)) or re.match(r"[^.\n]*", str(error))
        raise DamagedError(
            "LB-731",
            f"{path} is not a whole state dict; nothing in it was run",
            received=(found and found[0]) or type(error).__name__,
            expected="one dictionary of tensors, as torch.save(model.state_dict(), path) writes it",
            next="fetch or save the file again, or use the safetensors file of the same model",
        ) from error
    return {str(name): tensor.detach() for name, tensor in state.items()}


def _is_whole(value: object) -> bool:
    """Whether a value is a tensor whose numbers are all in the file: not one number in 2^50 places."""
    return isinstance(value, Tensor) and value.is_cpu and value.nbytes <= value.untyped_storage().nbytes()
