"""A model on disk: config.json, model.safetensors and the tokenizer, as transformers reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import ATTENTION_KINDS, AlbertConfig, HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.fast import Int8Calibration, is_int8, pack, refuse_non_finite, to_int8
from litebert.folder import names as on_disk
from litebert.folder import weights as files
from litebert.folder.config import PUBLISHED_SHAPES, doubts, read_head, read_layout, write_config
from litebert.folder.names import ALBERT, BERT, TensorNames
from litebert.folder.weights import damaged_model, read_weights
from litebert.nn import AlbertForPretraining, AlbertForTask, Network

_BY_PIECE = ("albert.embedding.word.weight", "masked_lm.bias")  # parameters with one row per piece
_NEXT_SENTENCE = (
    "This BERT's sentence head was trained on next-sentence prediction: order() tells whether the second text follows "
    "the first in a document, not which of two neighbours comes first."
)


@dataclass(frozen=True)
class LoadedModel:
    """A network, what its file lacks, and what the network does not need."""

    network: Network
    missing: frozenset[str]  # names of parameters, which have no numbers
    unused: tuple[str, ...] = ()  # names of tensors in the file
    notes: tuple[str, ...] = ()  # what the files leave uncertain


@dataclass(frozen=True)
class Start:
    """Which parameters were not copied, and the notes of the model that was loaded."""

    fresh: tuple[str, ...]  # these stay random
    dropped: tuple[str, ...]  # these are not used
    notes: tuple[str, ...] = ()


def head_of(network: Network) -> HeadConfig | None:
    """Return the task head of a network; None for the pretraining heads."""
    return network.head_config if isinstance(network, AlbertForTask) else None


def save_model(
    network: Network, folder: Path, *, dtype: torch.dtype = torch.float32, also: Mapping[str, Tensor] | None = None
) -> None:
    """Write config.json and model.safetensors; `Tokenizer.save` adds the vocabulary.

    An eight-bit network is written to model-int8.safetensors, one with a kind of attention that only litebert has to
    model-local.safetensors, or what its name is. transformers does not look there; under the usual name it would
    replace eight-bit weights by random ones, and compute full attention instead of another kind.

    Parameters without numbers, which the network's own file lacked, are not written; tensors of `also`, by their names
    on disk, are.
    """
    head, config = head_of(network), network.config
    parameters = {name: t for name, t in network.state_dict().items() if not t.is_meta}
    write_config(config, folder, head=head, parameters=parameters, dtype=str(dtype).removeprefix("torch."))
    is_usual = ATTENTION_KINDS[config.attention].is_exported
    file = files.WEIGHTS_FILE if is_usual else files.OTHER_FILE.format(config.attention)
    tensors = on_disk.to_disk(parameters, config, head) | dict(also or {})
    cast = {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}
    files.write_weights(folder / (files.INT8_FILE if is_int8(network.albert) else file), cast)


def load_model(folder: Path, *, dtype: torch.dtype = torch.float32, for_inference: bool = False) -> LoadedModel:
    """Read a model folder; parameters that its file lacks are listed in `missing`, never made up.

    For inference the weights are packed, and may be eight-bit; `dtype` is that of activations. An incomplete encoder or
    task head is an error; the two pretraining heads and the pooler may be missing, as in many files on the Hub.
    """
    (layout, config), (tensors, has_hashes) = read_layout(folder), read_weights(folder)
    loaded = build_network(
        tensors, config, read_head(folder), source=folder, layout=layout, dtype=dtype, for_inference=for_inference
    )
    if for_inference:
        pack(loaded.network.albert)
        refuse_non_finite(loaded.network)
        files.release(t for t in loaded.network.state_dict().values() if not t.is_meta)
    if has_hashes:
        return loaded
    name = files.weights_path(folder).name
    note = f"{name} has no hash: damage to its numbers cannot be noticed. Saving writes one."
    return replace(loaded, notes=(*loaded.notes, note))


def build_network(
    tensors: dict[str, Tensor],
    config: AlbertConfig,
    head: HeadConfig | None,
    *,
    source: Path,
    layout: TensorNames = ALBERT,
    dtype: torch.dtype = torch.float32,
    for_inference: bool = False,
) -> LoadedModel:
    """Build a network from tensors under Hugging Face's names; without a head, for pretraining."""
    named = on_disk.canonical(tensors, source, layout)
    config = on_disk.with_projection(named, config)
    has_int8 = any(name.endswith(".quantized") for name in named)
    if has_int8 and not for_inference:
        what = f"{source} is an eight-bit model, which supports inference only"
        raise LitebertError("LB-663", what, next="train, convert or export the float model that it was made from")
    with torch.device("meta"):  # parameters have shapes, and no memory yet
        kept = torch.float32 if has_int8 else dtype
        network: Network
        if head is None:
            network = AlbertForPretraining(config, dtype=kept)
        else:
            has_exits = head.record.is_pooled and any(name.startswith("exits.") for name in named)
            network = AlbertForTask(config, head, has_exits=has_exits, dtype=kept)
        if has_int8:
            to_int8(network, Int8Calibration.without_numbers(config))

    # Each parameter by its names on disk: partial sharing has several, whose tensors must be equal.
    wanted, parameters, found = network.state_dict(), dict[str, Tensor](), set[str]()
    places = {name: on_disk.tensor_names(name, config, head, layout) for name in wanted}
    for name, copies in places.items():
        for place in [place for place in copies if place in named]:
            found.add(place)
            if not on_disk.are_equal(parameters.setdefault(name, named[place]), named[place]):
                what = f"{source}: config.json says that {place} is shared, but its copies differ"
                raise DamagedError(
                    "LB-605", what, next='set "sharing" to "none" in config.json to load separate layers'
                )
    unused = tuple(sorted(named.keys() - found))

    # Unused heads are allowed, layers that are not in the configuration are not.
    pooler = f"{layout.encoder}pooler"
    if layers := [name for name in unused if name.startswith(layout.encoder) and not name.startswith(pooler)]:
        settings = "num_hidden_layers" if layout is BERT else "num_hidden_groups, inner_group_num and sharing"
        what = f"{source} has tensors that do not belong to this network"
        raise DamagedError("LB-604", what, received=", ".join(layers[:5]), next=f"check {settings} in config.json")
    for name, tensor in parameters.items():
        place, expected = f"{source}: {places[name][0]}", wanted[name]
        is_float = expected.is_floating_point()
        fits = tensor.is_floating_point() if is_float else tensor.dtype == expected.dtype
        if not fits or tensor.shape != expected.shape:
            theirs, ours = (f"{each.dtype} of shape {list(each.shape)}"[6:] for each in (tensor, expected))
            raise damaged_model("LB-606", f"{place} is not what the configuration says", theirs, ours)
        parameters[name] = files.widened(tensor, place)
        is_backwards = name == "albert.ranges" and bool((tensor[..., 0] > 0).any() or (tensor[..., 1] < 0).any())
        if is_backwards or (name.endswith(".scale") and bool((tensor <= 0).any())):
            numbers = f"from {float(tensor.min()):.4g} to {float(tensor.max()):.4g}"
            raise damaged_model("LB-666", f"{place} has numbers that no calibration gives", numbers)

    # Without a task head, the pretraining heads and the pooler may be missing, each of their layers as a whole.
    missing = frozenset(wanted) - frozenset(parameters)
    optional = ("masked_lm.", "sentence_order.", *(("albert.pooler.",) if head is None else ()))
    layers_there = {name.rpartition(".")[0] for name in parameters}
    needed = [name for name in missing if not name.startswith(optional) or name.rpartition(".")[0] in layers_there]
    if needed:
        names = [places[name][0] for name in sorted(needed)]
        received = f"no {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
        again = f'to read the encoder alone, set "architectures" to ["{layout.family}Model"] in the configuration'
        raise DamagedError("LB-660", f"{source} lacks weights that its network needs", received=received, next=again)
    network.load_state_dict(parameters, strict=False, assign=True)
    for parameter in network.parameters():
        parameter.requires_grad_()
    # Doubts about the published models are worth a note where the shape is one of theirs.
    is_published = config.sharing == "all" and (config.hidden_size, config.num_hidden_layers) in PUBLISHED_SHAPES
    notes = tuple(doubts(config).values()) if layout is ALBERT and is_published else ()
    if layout is BERT and "sentence_order.classifier.weight" in parameters:
        notes = (_NEXT_SENTENCE,)
    return LoadedModel(network.eval(), missing, unused, notes)


@torch.no_grad()
def start_from(network: Network, folder: Path, *, rows: Sequence[Sequence[int]] | None = None) -> Start:
    """Copy the folder's encoder into a network that is to be trained, and its head if both heads are the same.

    A head of another kind, or with other labels, is dropped and reported: thus RTE starts from MNLI (paper, footnote
    4). Only pretraining heads and the pooler may be missing in the folder.

    For a new vocabulary, `rows` has the former pieces of each piece, which gets their mean.
    """
    loaded, ours = load_model(folder), network.state_dict()
    theirs = {name: tensor for name, tensor in loaded.network.state_dict().items() if name not in loaded.missing}
    for name in _BY_PIECE if rows is not None else ():
        if name in theirs:
            former = theirs[name]
            theirs[name] = torch.stack([former[list(ids)].mean(0) for ids in rows or ()])
    ours_alone = () if head_of(network) == head_of(loaded.network) else ("head.", "exits.")
    taken = {name for name in theirs if name in ours and not name.startswith(ours_alone)}
    for name in taken:
        ours[name].copy_(theirs[name])
    return Start(fresh=tuple(sorted(set(ours) - taken)), dropped=tuple(sorted(set(theirs) - taken)), notes=loaded.notes)
