"""The one reader and the one writer of model folders.

A folder has `config.json`, the weights, the tokenizer and, if it makes vectors of
texts, the files of sentence-transformers. Whatever reads or writes a model passes
through here, so nothing that travels with the weights is forgotten.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import AlbertConfig, HeadConfig, have_same_layers
from litebert.device import Device, move_network
from litebert.errors import NoVocabularyError
from litebert.fast import is_int8, pack, refuse_non_finite
from litebert.fast.linear import packing_pays
from litebert.folder import names as on_disk
from litebert.folder.config import (
    CONFIG_FILE,
    read_config,
    read_head,
    read_layout,
    read_pretraining_heads,
    write_config,
)
from litebert.folder.doubts import changed_settings, doubts_about, find_other_labels
from litebert.folder.model import ModelFolder, build_network, head_of
from litebert.folder.vector_files import (
    MODULES_FILE,
    SENTENCE_FILES,
    VectorsError,
    read_sentence_vectors,
    write_sentence_transformers,
)
from litebert.folder.weights import (
    INT8_FILE,
    OTHER_FILE,
    WEIGHTS_FILE,
    Weights,
    read_weights,
    release,
    write_weights,
)
from litebert.hub import locate
from litebert.nn import AlbertForPretraining, AlbertForTask, Network
from litebert.plugins import ATTENTION_KINDS
from litebert.tokenizer import TOKENIZER_FILES, Tokenizer
from litebert.tokenizer.on_disk import find_other_vocabulary

_MAY_FIND_NO_ANSWER = (
    "This model's folder does not say whether it was trained on questions without an"
    " answer (SQuAD 2.0): where the score of [CLS] is higher than that of every span, it"
    ' finds no answer. If it was trained on SQuAD 1.1, set "always_answers": true in'
    " config.json."
)
_BLOCKS = ("albert.attention.", "albert.feed_forward.")
# parameters with one row per piece
_BY_PIECE = ("albert.embedding.word.weight", "masked_lm.bias")


# ---- reading -------------------------------------------------------------------------


def read_folder(
    path_or_name: str | PathLike[str],
    *,
    dtype: torch.dtype = torch.float32,
    for_inference: bool = False,
    device: Device | None = None,
) -> ModelFolder:
    """Read a model folder or a run, or a model from the Hub by its name; parameters that
    its file lacks are listed in `missing` and get no values.

    For inference the weights are packed, on the `device` (by default the CPU), and may
    be eight-bit: a CPU computes in eight bits, a GPU with the rounded weights. `dtype`
    is for activations. An incomplete encoder or task head is an error; the two pretraining
    heads and the pooler may be missing, as in many files on the Hub.
    """
    folder = locate(path_or_name)
    layout, config = read_layout(folder)
    weights = read_weights(folder)
    head = _settle_nulls(read_head(folder), weights)
    model = build_network(
        weights.tensors,
        config,
        head,
        pretraining_heads=read_pretraining_heads(folder),
        source=folder,
        layout=layout,
        dtype=dtype,
        for_inference=for_inference,
    )
    if for_inference and (device is None or device.is_cpu):
        _prepare_on_cpu(model.network, weights, dtype)
    elif for_inference:
        assert device is not None
        move_network(model.network, device)
        model.network.albert.dtype = dtype
        pack(model.network.albert)
        refuse_non_finite(model.network)

    notes = [*model.notes]
    # published by others: what litebert wrote has hashes
    if weights.unhashed and layout is on_disk.ALBERT:
        notes += doubts_about(config)
    notes += _notes_on(weights, config, folder)
    if head is not None and head.leaves_answers_open:
        notes.append(_MAY_FIND_NO_ANSWER)
    model = read_beside(replace(model, notes=tuple(notes)), folder)
    # litebert writes equal vocabularies, and comparing them takes a tenth of a second
    if weights.unhashed and model.tokenizer is not None:
        other = find_other_vocabulary(folder, model.tokenizer.pieces)
        if other is not None:
            note = f"the vocabularies of this folder differ: {other}"
            model = replace(model, notes=(*model.notes, note))
    return model


def _prepare_on_cpu(network: Network, weights: Weights, dtype: torch.dtype) -> None:
    """Pack the weights of a network; what answers are not computed with stays in the
    mapped files, and its pages return to the system.
    """
    state = network.state_dict().values()
    in_file = [tensor for tensor in state if not tensor.is_meta]
    copy_used(network, weights, dtype)
    pack(network.albert)
    refuse_non_finite(network)
    release(in_file)


def copy_used(network: Network, weights: Weights, dtype: torch.dtype) -> None:
    """Copy the weights with which answers are computed out of the mapped files.

    Whoever copies other weights over these files would change the answers, or end the
    process by SIGBUS. Packed matrices, most of all weights, have their own memory; the
    word vectors, biases, norms and heads get theirs here. Only gradients read the
    matrices in the files after that (see `require_unchanged`).
    """
    is_packed = dtype != torch.float32 or packing_pays(dtype) or is_int8(network.albert)
    tensors = weights.tensors.values()
    mapped = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        is_matrix = name.startswith(_BLOCKS) and tensor.ndim == 2
        if tensor.is_meta or (is_packed and is_matrix):
            continue
        if tensor.untyped_storage().data_ptr() in mapped:
            tensor.data = tensor.data.clone()


def _settle_nulls(head: HeadConfig | None, weights: Weights) -> HeadConfig | None:
    """Return a head with what is known of the questions that it was trained on.

    Hashed weights without this setting are from a litebert that had linear heads for
    SQuAD 1.1 only.
    """
    if head is not None and head.leaves_answers_open and not weights.unhashed:
        return head.model_copy(update={"always_answers": True})
    return head


def read_shape(path_or_name: str | PathLike[str]) -> ModelFolder:
    """Read a model folder without its weights: no parameter has a value."""
    folder = locate(path_or_name)
    config = read_config(folder)
    head = read_head(folder)
    network: Network
    with torch.device("meta"):
        network = AlbertForPretraining(config, heads=read_pretraining_heads(folder))
        if head is not None:
            network = AlbertForTask(config, head)
    missing = frozenset(network.state_dict())
    return read_beside(ModelFolder(network, source=folder, missing=missing), folder)


def read_beside(model: ModelFolder, folder: Path) -> ModelFolder:
    """Add what a folder has beside the weights: the tokenizer, and how texts become
    vectors.
    """
    tokenizer = None
    vectors = None
    notes = model.notes
    label = find_other_labels(folder)
    if label is not None:
        notes = (*notes, f"config.json contradicts itself: {label}. id2label is used.")
    # Without a usable tokenizer or vectors, the network can still be read; whoever
    # needs them calls `require_tokenizer` and `require_vectors`, which raise.
    with suppress(NoVocabularyError):
        tokenizer = Tokenizer.load(folder)
    try:
        vectors = read_sentence_vectors(folder, hidden_size=model.config.hidden_size)
    except VectorsError as error:
        notes = (*notes, f"{error.what}: {error.received}")
    return replace(model, tokenizer=tokenizer, vectors=vectors, notes=notes)


def _notes_on(weights: Weights, config: AlbertConfig, folder: Path) -> list[str]:
    """Return notes on weights that may be damaged or whose configuration was
    changed.
    """
    notes = list[str]()
    if weights.unhashed:
        files = weights.unhashed[0]
        num_others = len(weights.unhashed) - 1
        if num_others > 0:
            files += f" and {num_others} more"
        notes.append(
            f"{files} has no hash: damage to its weights cannot be detected."
            " litebert import huggingface writes a copy with one."
        )
    changed = changed_settings(folder, config)
    if changed:
        notes.append(
            "config.json was changed after the weights were saved:"
            f" {'; '.join(changed)}. The model computes something else than when it was"
            " saved."
        )
    return notes


# ---- writing -------------------------------------------------------------------------


MODEL_FILES = (
    CONFIG_FILE,
    WEIGHTS_FILE,
    INT8_FILE,
    *map(OTHER_FILE.format, ATTENTION_KINDS),
    *TOKENIZER_FILES,
    *SENTENCE_FILES,
)
"""The names of all files that `write_folder` writes into any folder."""


def write_folder(
    model: ModelFolder,
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write config.json, the weights, the tokenizer, and how texts become vectors.

    An eight-bit network is written to model-int8.safetensors, and one with a kind of
    attention that only litebert has to model-local.safetensors, or whatever its name
    is. transformers does not look there; under the usual name it would replace
    eight-bit weights with random ones, and compute full attention instead of another
    kind.

    Parameters without values, which the network's own file lacked, or that were never
    trained are not written.
    """
    network = model.network
    config = model.config
    untrained = getattr(network, "untrained", ())
    parameters = dict[str, Tensor]()
    for name, tensor in network.state_dict().items():
        if not tensor.is_meta and name not in untrained:
            parameters[name] = tensor
    kind = str(dtype).removeprefix("torch.")
    write_config(
        config,
        folder,
        head=model.head,
        pretraining_heads=getattr(network, "heads", ()),
        parameters=parameters,
        dtype=kind,
    )

    tensors = dict[str, Tensor]()
    for name, tensor in parameters.items():
        for place in on_disk.tensor_names(name, config, model.head):
            tensors[place] = tensor.detach().clone()
    if not config.projects_embeddings:
        tensors |= on_disk.identity_projection(config)
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            tensors[name] = tensor.to(dtype)
    write_weights(folder / _file_for(network), tensors)

    if model.tokenizer is not None:
        model.tokenizer.save(folder, max_length=config.max_position_embeddings)
    # a folder that is written again has no vectors but these
    (folder / MODULES_FILE).unlink(missing_ok=True)
    if model.vectors is not None:
        write_sentence_transformers(folder, model.vectors, config)


def _file_for(network: Network) -> str:
    """Return the name of the file for the weights of a network."""
    if is_int8(network.albert):
        return INT8_FILE
    if network.config.has_full_attention:
        return WEIGHTS_FILE
    return OTHER_FILE.format(network.config.attention)


# ---- a network that is to be trained -------------------------------------------------


@dataclass(frozen=True)
class Start:
    """Which parameters were not copied, and the notes of the model that was loaded."""

    fresh: tuple[str, ...]  # these stay random
    dropped: tuple[str, ...]  # these are not used
    notes: tuple[str, ...] = ()


@torch.no_grad()
def start_from(
    network: Network, folder: Path, *, rows: Sequence[Sequence[int]] | None = None
) -> Start:
    """Copy the folder's encoder into a network that is to be trained, and its head if
    both heads are the same.

    A head of another kind, or with other labels, is dropped and reported: so RTE can
    start from MNLI (paper, footnote 4). Only pretraining heads and the pooler may be
    missing in the folder.

    For a new vocabulary, `rows` has, for each piece, the ids of the former pieces whose
    mean it gets.
    """
    start = read_folder(folder)
    source = start.network.state_dict()
    for name in start.missing:
        del source[name]
    if rows is not None:
        for name in source.keys() & {*_BY_PIECE}:
            former = source[name]  # a row, or a number, for each former piece
            means = [former[list(ids)].mean(0) for ids in rows]
            source[name] = torch.stack(means)
    has_same_head = have_same_layers(head_of(network), start.head)
    parameters = network.state_dict()
    copied = set[str]()
    for name in source.keys() & parameters.keys():
        if has_same_head or not name.startswith("head."):
            parameters[name].copy_(source[name])
            copied.add(name)
    return Start(
        fresh=tuple(sorted(parameters.keys() - copied)),
        dropped=tuple(sorted(source.keys() - copied)),
        notes=start.notes,
    )


def fill_gaps(model: ModelFolder) -> Network:
    """Return the network with zeros for what its file lacks: the answers of such a head
    are all equally likely.
    """
    shapes = model.network.state_dict()
    zeros = dict[str, Tensor]()
    for name in model.missing:
        zeros[name] = torch.zeros_like(shapes[name], device="cpu")
    model.network.load_state_dict(zeros, strict=False, assign=True)
    return model.network
