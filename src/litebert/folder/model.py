"""A model on disk, as transformers reads it: the network, and its tensors in
safetensors files with their hash.
"""

import ctypes
import hashlib
import mmap
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from litebert.config import ATTENTION_KINDS, AlbertConfig, HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.fast import Int8Calibration, is_int8, pack, refuse_non_finite, to_int8
from litebert.files import hash_file, parse_json, read_json, write_stream
from litebert.folder import names as on_disk
from litebert.folder.config import (
    PUBLISHED_SHAPES,
    doubts,
    read_head,
    read_layout,
    write_config,
)
from litebert.folder.names import ALBERT, BERT, TensorNames, damaged_model
from litebert.nn import AlbertForPretraining, AlbertForTask, Network

WEIGHTS_FILE = "model.safetensors"
INT8_FILE = "model-int8.safetensors"
OTHER_FILE = "model-{}.safetensors"  # for a kind of attention
INDEX_FILE = "model.safetensors.index.json"
_HEADER_LIMIT = 1 << 20  # some 10,000 tensors; parsing takes forty times as much memory
# MADV_PAGEOUT (Linux 5.4): unlike MADV_DONTNEED it loses nothing that was written
_PAGEOUT = 21

# The metadata key for the hash of a file, computed with _NO_HASH in its place;
# transformers ignores it. Most processors compute SHA-256 in hardware, five times as
# fast as hashlib's blake2b.
_HASH = "sha256"
_NO_HASH = b"0" * 64
# parameters with one row per piece
_BY_PIECE = ("albert.embedding.word.weight", "masked_lm.bias")
_NEXT_SENTENCE = (
    "This BERT's sentence head was trained on next-sentence prediction: order() tells"
    " whether the second text follows the first in a document, not which of two"
    " neighbours comes first."
)


@dataclass(frozen=True)
class LoadedModel:
    """A network, what its file lacks, and what the file has that the network does not
    need.
    """

    network: Network
    missing: frozenset[str]  # names of parameters, which have no values
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
    network: Network,
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    also: Mapping[str, Tensor] | None = None,
) -> None:
    """Write config.json and model.safetensors; `Tokenizer.save` adds the vocabulary.

    An eight-bit network is written to model-int8.safetensors, and one with a kind of
    attention that only litebert has to model-local.safetensors, or whatever its name
    is. transformers does not look there; under the usual name it would replace
    eight-bit weights with random ones, and compute full attention instead of another
    kind.

    Parameters without values, which the network's own file lacked, or that were never
    trained are not written. The tensors in `also`, keyed by their names on disk, are.
    """
    head = head_of(network)
    config = network.config
    untrained = getattr(network, "untrained", ())
    parameters = {
        name: t
        for name, t in network.state_dict().items()
        if not (t.is_meta or name in untrained)
    }
    write_config(
        config,
        folder,
        head=head,
        parameters=parameters,
        dtype=str(dtype).removeprefix("torch."),
    )
    is_usual = ATTENTION_KINDS[config.attention].is_full
    file = WEIGHTS_FILE if is_usual else OTHER_FILE.format(config.attention)
    places = [
        (place, t)
        for name, t in parameters.items()
        for place in on_disk.tensor_names(name, config, head)
    ]
    tensors = {place: tensor.detach().clone() for place, tensor in places} | dict(
        also or {}
    )
    if not config.projects_embeddings:
        tensors |= on_disk.identity_projection(config)
    cast = {
        name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()
    }
    write_weights(folder / (INT8_FILE if is_int8(network.albert) else file), cast)


def load_model(
    folder: Path, *, dtype: torch.dtype = torch.float32, for_inference: bool = False
) -> LoadedModel:
    """Read a model folder; parameters that its file lacks are listed in `missing` and
    get no values.

    For inference the weights are packed, and may be eight-bit; `dtype` is for
    activations. An incomplete encoder or task head is an error; the two pretraining
    heads and the pooler may be missing, as in many files on the Hub.
    """
    (layout, config), (tensors, has_hashes) = read_layout(folder), read_weights(folder)
    loaded = build_network(
        tensors,
        config,
        read_head(folder),
        source=folder,
        layout=layout,
        dtype=dtype,
        for_inference=for_inference,
    )
    if for_inference:
        pack(loaded.network.albert)
        refuse_non_finite(loaded.network)
        release(t for t in loaded.network.state_dict().values() if not t.is_meta)
    if has_hashes:
        return loaded
    name = weights_path(folder).name
    note = (
        f"{name} has no hash: damage to its weights cannot be detected. Saving writes"
        " one."
    )
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
    """Build a network from tensors under Hugging Face's names; without a head, for
    pretraining.
    """
    named = on_disk.canonicalise(tensors, source, layout)
    # a projection is kept unless it is the identity
    if config.embedding_size == config.hidden_size:
        weight, bias = (named.get(name) for name in on_disk.PROJECTION)
        # may be absurd: an identity is made only if the file has a matrix of that shape
        size = config.hidden_size
        is_other = weight is not None and (
            weight.shape != (size, size)
            or not on_disk.are_equal(weight, torch.eye(size))
        )
        if is_other or (bias is not None and bias.any()):
            config = config.model_copy(update={"embedding_projection": True})
        else:
            named = {
                name: tensor
                for name, tensor in named.items()
                if name not in on_disk.PROJECTION
            }
    has_int8 = any(name.endswith(".quantized") for name in named)
    if has_int8 and not for_inference:
        what = f"{source} is an eight-bit model, which supports inference only"
        raise LitebertError(
            "LB-663",
            what,
            next="train, convert or export the float model that it was made from",
        )
    with torch.device("meta"):  # parameters have shapes, but no memory yet
        kept = torch.float32 if has_int8 else dtype
        network: Network
        if head is None:
            network = AlbertForPretraining(config, dtype=kept)
        else:
            has_exits = head.record.is_pooled and any(
                name.startswith("exits.") for name in named
            )
            network = AlbertForTask(config, head, has_exits=has_exits, dtype=kept)
        if has_int8:
            to_int8(network, Int8Calibration.without_numbers(config))

    # Each parameter by its names on disk: with partial sharing, there are several, and
    # their tensors must be equal.
    wanted = network.state_dict()
    parameters = dict[str, Tensor]()
    found = set[str]()
    places = {name: on_disk.tensor_names(name, config, head, layout) for name in wanted}
    for name, copies in places.items():
        for place in [place for place in copies if place in named]:
            found.add(place)
            if not on_disk.are_equal(
                parameters.setdefault(name, named[place]), named[place]
            ):
                what = (
                    f"{source}: config.json says that {place} is shared, but its copies"
                    " differ"
                )
                again = 'set "sharing" to "none" in config.json to load separate layers'
                raise DamagedError("LB-605", what, next=again)
    unused = tuple(sorted(named.keys() - found))

    # Unused heads are allowed; layers that are not in the configuration are not.
    pooler = f"{layout.encoder}pooler"
    if layers := [
        name
        for name in unused
        if name.startswith(layout.encoder) and not name.startswith(pooler)
    ]:
        settings = (
            "num_hidden_layers"
            if layout is BERT
            else "num_hidden_groups, inner_group_num and sharing"
        )
        what = f"{source} has tensors that do not belong to this network"
        raise DamagedError(
            "LB-604",
            what,
            received=", ".join(layers[:5]),
            next=f"check {settings} in config.json",
        )
    for name, tensor in parameters.items():
        place = f"{source}: {places[name][0]}"
        expected = wanted[name]
        is_float = expected.is_floating_point()
        fits = (
            tensor.is_floating_point() if is_float else tensor.dtype == expected.dtype
        )
        if not fits or tensor.shape != expected.shape:
            theirs, ours = (
                f"{each.dtype} of shape {list(each.shape)}"[6:]
                for each in (tensor, expected)
            )
            raise damaged_model(
                "LB-606", f"{place} does not match the configuration", theirs, ours
            )
        parameters[name] = widen(tensor, place)
        is_backwards = name == "albert.ranges" and bool(
            (tensor[..., 0] > 0).any() or (tensor[..., 1] < 0).any()
        )
        if is_backwards or (name.endswith(".scale") and bool((tensor <= 0).any())):
            numbers = f"from {float(tensor.min()):.4g} to {float(tensor.max()):.4g}"
            raise damaged_model(
                "LB-666", f"{place} has values that no calibration gives", numbers
            )

    # Without a task head, the pretraining heads and the pooler may be missing, each of
    # their layers as a whole.
    missing = frozenset(wanted) - frozenset(parameters)
    optional = (
        "masked_lm.",
        "sentence_order.",
        *(("albert.pooler.",) if head is None else ()),
    )
    layers_there = {name.rpartition(".")[0] for name in parameters}
    needed = [
        name
        for name in missing
        if not name.startswith(optional) or name.rpartition(".")[0] in layers_there
    ]
    if needed:
        names = [places[name][0] for name in sorted(needed)]
        received = f"no {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
        again = (
            f'to read only the encoder, set "architectures" to ["{layout.family}Model"]'
            " in the configuration"
        )
        raise DamagedError(
            "LB-660",
            f"{source} lacks weights that its network needs",
            received=received,
            next=again,
        )
    network.load_state_dict(parameters, strict=False, assign=True)
    for parameter in network.parameters():
        parameter.requires_grad_()
    # Doubts about the published models are worth a note if the shape is one of theirs.
    is_published = (
        config.sharing == "all"
        and (config.hidden_size, config.num_hidden_layers) in PUBLISHED_SHAPES
    )
    notes = tuple(doubts(config).values()) if layout is ALBERT and is_published else ()
    if layout is BERT and "sentence_order.classifier.weight" in parameters:
        notes = (_NEXT_SENTENCE,)
    return LoadedModel(network.eval(), missing, unused, notes)


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
    loaded = load_model(folder)
    ours = network.state_dict()
    theirs = {
        name: tensor
        for name, tensor in loaded.network.state_dict().items()
        if name not in loaded.missing
    }
    if rows is not None:
        for name in theirs.keys() & {*_BY_PIECE}:
            former = theirs[name]
            theirs[name] = torch.stack([former[list(ids)].mean(0) for ids in rows])
    ours_alone = (
        () if head_of(network) == head_of(loaded.network) else ("head.", "exits.")
    )
    taken = {
        name for name in theirs if name in ours and not name.startswith(ours_alone)
    }
    for name in taken:
        ours[name].copy_(theirs[name])
    return Start(
        fresh=tuple(sorted(set(ours) - taken)),
        dropped=tuple(sorted(set(theirs) - taken)),
        notes=loaded.notes,
    )


def fill_gaps(loaded: LoadedModel) -> Network:
    """Return the network with zeros for what its file lacks: the answers of such a head
    are all equally likely.
    """
    there = loaded.network.state_dict()
    zeros = {
        name: torch.zeros_like(there[name], device="cpu") for name in loaded.missing
    }
    loaded.network.load_state_dict(zeros, strict=False, assign=True)
    return loaded.network


# ---- its tensors: one safetensors file, or several with an index ---------------------


def write_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors as one safetensors file with its hash, atomically."""
    data = memoryview(
        save(
            {name: t.cpu().contiguous() for name, t in tensors.items()},
            metadata={"format": "pt"},
        )
    )
    stop = 8 + int.from_bytes(data[:8], "little")
    # The hash is added by hand: the library writes several entries of metadata in an
    # order that varies.
    table = bytes(data[8:stop]).replace(
        b'{"format":"pt"', b'{"format":"pt","%s":"%s"' % (_HASH.encode(), _NO_HASH), 1
    )
    # tensors are aligned to 8 bytes
    table = table.rstrip(b" ") + b" " * (-len(table.rstrip(b" ")) % 8)
    header = len(table).to_bytes(8, "little") + table
    digest = hashlib.sha256(header)
    digest.update(data[stop:])
    write_stream(
        path, (header.replace(_NO_HASH, digest.hexdigest().encode(), 1), data[stop:])
    )


def weights_path(folder: Path) -> Path:
    """Return the single file with the weights; model.safetensors if there is none."""
    paths = [
        folder / name
        for name in (WEIGHTS_FILE, INT8_FILE, *map(OTHER_FILE.format, ATTENTION_KINDS))
    ]
    return next((path for path in paths if path.is_file()), paths[0])


def hash_weights(folder: Path) -> str:
    """Return the blake2b of a folder's weights in hex; of weights in several files,
    those of all.
    """
    return " ".join(map(hash_file, sorted(folder.glob("*.safetensors"))))


def read_weights(folder: Path) -> tuple[dict[str, Tensor], bool]:
    """Map all tensors of a folder, and return whether every file has a hash, by which
    damage is detected.

    Without a hash, unused tensors are never read.
    """
    single = weights_path(folder)
    index = folder / INDEX_FILE
    paths = [single]
    tensors = dict[str, Tensor]()
    has_hashes = True
    # several files, all in the index's own folder
    if index.is_file() and not single.is_file():
        listed = read_json(index, command=f"fetch {index} again").get("weight_map")
        names = (
            sorted(set(map(str, listed.values()))) if isinstance(listed, dict) else []
        )
        strange = [name for name in names if Path(name).name != name or "\0" in name]
        if not names or strange:
            what = f"{index} does not list the files of a model"
            received = ", ".join(strange[:3]) or "no weight_map"
            raise damaged_model(
                "LB-608", what, received, "names of files in the same folder"
            )
        paths = [folder / name for name in names]
    for path in paths:
        if not path.is_file():
            others = [
                each.name
                for each in folder.glob("*")
                if each.suffix in (".bin", ".h5", ".msgpack", ".index")
            ]
            received = ", but ".join(
                [f"no {path.name}", *filter(None, [", ".join(sorted(others)[:3])])]
            )
            next_step = "litebert import --help lists what can be converted"
            raise LitebertError(
                "LB-602",
                f"there are no weights in {folder}",
                received=received,
                next=next_step,
            )

        # The header is checked before anything else is allocated.
        with path.open("rb") as file:
            start = file.read(8)
            room = path.stat().st_size - 8
            size = int.from_bytes(start, "little")
            if start.startswith(
                (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
            ):
                raise _incomplete(path, "a pickle, as torch.save writes it")
            if len(start) < 8 or size > min(_HEADER_LIMIT, room):
                raise _incomplete(path, f"a header of {size:,} bytes in {room + 8:,}")
            header = start + file.read(size)
        try:
            table: Any = parse_json(header[8:].decode(), distinct_keys=True)
            tensors |= load_file(path)  # it validates the header
        except (
            SafetensorError,
            ValueError,
            OSError,
            MemoryError,
            RecursionError,
        ) as error:
            raise _incomplete(path, error) from error

        stored: str = (table.get("__metadata__") or {}).get(_HASH, "")
        if not stored:
            has_hashes = False
            continue
        with path.open("rb") as file:
            file.seek(len(header))
            begun = partial(
                hashlib.sha256, header.replace(stored.encode(), _NO_HASH, 1)
            )
            found = hashlib.file_digest(file, begun).hexdigest()
        if found != stored:
            theirs = f"SHA-256 {stored[:16]}…, written into the file with them"
            what = f"the weights in {path} are not those that were saved"
            raise damaged_model("LB-676", what, f"SHA-256 {found[:16]}…", theirs)
    return tensors, has_hashes


def _incomplete(path: Path, received: object) -> DamagedError:
    what = f"{path} is not a complete safetensors file"
    expected = "a complete one; pickles are never opened here"
    return damaged_model("LB-603", what, received, expected)


def widen(tensor: Tensor, place: str) -> Tensor:
    """Return floats as float32, which must be finite, and integers unchanged; errors
    name the `place`, FILE: TENSOR.
    """
    if not tensor.is_floating_point():
        return tensor
    wide = tensor.float()
    # aminmax copies nothing, and returns NaN if there is one.
    if wide.numel() and not all(bool(end.isfinite()) for end in wide.aminmax()):
        raise damaged_model(
            "LB-607", f"{place} has weights that are not finite", "NaN or infinity"
        )
    return wide


def release(tensors: Iterable[Tensor]) -> None:
    """Return the pages of tensors in a mapped file, and free heap memory, to the system
    (Linux only).

    Packed weights have their own memory; after that, the file is read only for rows of
    the word embeddings.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    for tensor in tensors:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > start:
            libc.madvise(
                ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _PAGEOUT
            )
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
