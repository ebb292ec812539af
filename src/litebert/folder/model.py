"""A model on disk: config.json, model.safetensors and the tokenizer, as transformers reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import ATTENTION_KINDS, AlbertConfig, HeadConfig
from litebert.errors import DamagedError
from litebert.fast import AlbertWithExits, accelerate, is_int8, pack, refuse_non_finite, to_int8
from litebert.fast.int8 import Int8Calibration
from litebert.folder.config import (
    bert_notes,
    notes_on_loading,
    read_config,
    read_head,
    read_layout,
    spelling_notes,
    write_config,
)
from litebert.folder.model import is_eight_bit, not_float, require_sound
from litebert.folder.names import (
    ALBERT,
    BERT,
    TensorNames,
    canonical,
    from_disk,
    tensor_names,
    to_disk,
    with_projection,
)
from litebert.folder.weights import INT8_FILE, OTHER_FILE, WEIGHTS_FILE, read_weights, release, widened, write_weights
from litebert.nn import AlbertForPretraining, AlbertForTask, Network
from litebert.nn.model import without_numbers


@dataclass(frozen=True)
class LoadedModel:
    """A network, what its file lacks, and what the network does not need.

    `missing` are names of parameters, which have no numbers; `unused` are names of tensors in the
    file; `notes` say what the files leave uncertain.
    """

    network: Network
    missing: frozenset[str]
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def save_model(network: Network, folder: Path, *, dtype: torch.dtype = torch.float32) -> None:
    """Write config.json and model.safetensors; `Tokenizer.save` adds the vocabulary.

    An eight-bit network is written to model-int8.safetensors, one with a kind of attention that only litebert has to
    model-local.safetensors, or what its name is. transformers does not look there; under the usual name it would
    replace eight-bit weights by random ones, and compute full attention instead of another kind.

    Parameters without numbers, which the network's own file lacked, are not written.
    """
    head = head_of(network)
    parameters = {name: t for name, t in network.state_dict().items() if not t.is_meta}
    write_config(
        network.config,
        folder,
        head=head,
        parameters=parameters,
        dtype=str(dtype).removeprefix("torch."),
        is_int8=is_int8(network.albert),
    )
    tensors = to_disk(parameters, network.config, head)
    write_weights(folder / _file_name(network), tensors, dtype=dtype)


def _file_name(network: Network) -> str:
    if is_int8(network.albert):
        return INT8_FILE
    kind = ATTENTION_KINDS[network.config.attention]
    return WEIGHTS_FILE if kind.is_exported else OTHER_FILE.format(network.config.attention)


def load_model(folder: Path, *, dtype: torch.dtype = torch.float32, for_inference: bool = False) -> LoadedModel:
    """Read a model folder; parameters that its file lacks are listed in `missing`, never made up.

    For inference the weights are packed, and may be eight-bit; `dtype` is that of activations. An
    incomplete encoder or task head is an error (LB-660); the two pretraining heads and the pooler
    may be missing, as in many files on the Hub. Other errors are those of `read_config`,
    `read_weights` and `build_network`.
    """
    config, tensors = read_config(folder), read_weights(folder)
    head = read_head(folder, tensors={name: tuple(t.shape) for name, t in tensors.items()})
    loaded = build_network(
        tensors, config, head, source=folder, layout=read_layout(folder), dtype=dtype, for_inference=for_inference
    )
    if for_inference:
        accelerate(loaded.network)
        pack(loaded.network.albert)
        refuse_non_finite(loaded.network)
        release(t for t in loaded.network.state_dict().values() if not t.is_meta)
    return replace(loaded, notes=(*loaded.notes, *spelling_notes(folder)))


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
    """Build a network from tensors under Hugging Face's names; without a head, for pretraining.

    Raises:
        LitebertError: LB-663, they are eight-bit, and this is not for inference.
        DamagedError: LB-604 to LB-607, LB-609, LB-660 to LB-666, they do not fit the network.
    """
    named = canonical(tensors, source, layout)
    config = with_projection(named, config)
    has_exits = any(name.startswith("exits.") for name in named)
    has_int8 = is_eight_bit(named)
    if has_int8 and not for_inference:
        raise not_float(source)
    network = _empty_network(config, head, torch.float32 if has_int8 else dtype, has_exits=has_exits)
    if has_int8:
        require_sound(named, source)
        to_int8(network, Int8Calibration.without_numbers(config))
    expected = network.state_dict()
    parameters, unused = from_disk(named, expected, config, head, source=source, layout=layout)
    _require_known_layers(unused, source, layout)
    for name, tensor in parameters.items():
        place = f"{source}: {tensor_names(name, config, head, layout)[0]}"
        _require_shape(place, tensor, expected[name])
        parameters[name] = widened(tensor, place)
    missing = frozenset(expected) - frozenset(parameters)
    if needed := _needed(missing, network):
        names = [tensor_names(name, config, head, layout)[0] for name in needed[:3]]
        raise _incomplete(source, f"no {', '.join(names)}{' ...' if len(needed) > 3 else ''}", layout)
    network.load_state_dict(parameters, strict=False, assign=True)
    for parameter in network.parameters():
        parameter.requires_grad_()
    notes = bert_notes(missing) if layout is BERT else notes_on_loading(config)
    return LoadedModel(network.eval(), missing, unused, notes)


def head_of(network: Network) -> HeadConfig | None:
    """Return the task head of a network; None for the pretraining heads."""
    return network.head_config if isinstance(network, AlbertForTask) else None


def _empty_network(config: AlbertConfig, head: HeadConfig | None, dtype: torch.dtype, *, has_exits: bool) -> Network:
    """Build a network whose parameters have shapes but no numbers yet."""
    with without_numbers():
        if head is None:
            return AlbertForPretraining(config, dtype=dtype)
        kind = AlbertWithExits if has_exits and head.is_pooled else AlbertForTask
        return kind(config, head, dtype=dtype)


def _require_known_layers(unused: tuple[str, ...], source: Path, layout: TensorNames) -> None:
    """Raise LB-604 for layers that are not in the configuration; unused heads are allowed."""
    encoder, pooler = layout.encoder, f"{layout.encoder}pooler."
    layers = [name for name in unused if name.startswith(encoder) and not name.startswith(pooler)]
    if layers:
        settings = "num_hidden_layers" if layout is BERT else "num_hidden_groups, inner_group_num and sharing"
        raise DamagedError(
            "LB-604",
            f"{source} has tensors that do not belong to this network",
            received=", ".join(layers[:5]),
            expected="the tensors of config.json's network",
            next=f"check {settings} in config.json",
        )


def _require_shape(place: str, tensor: Tensor, expected: Tensor) -> None:
    if tensor.is_floating_point() != expected.is_floating_point() or (
        not expected.is_floating_point() and tensor.dtype != expected.dtype
    ):
        raise DamagedError(
            "LB-664",
            f"{place} has another type",
            received=str(tensor.dtype).removeprefix("torch."),
            expected=str(expected.dtype).removeprefix("torch."),
            next="make or fetch the model again",
        )
    if tensor.shape != expected.shape:
        raise DamagedError(
            "LB-606",
            f"{place} has another shape",
            received=str(list(tensor.shape)),
            expected=f"{list(expected.shape)}, by config.json",
            next="use the config.json that belongs to these weights",
        )


def _needed(missing: frozenset[str], network: Network) -> list[str]:
    """Return the missing parameters that the network needs."""
    needed = [
        name
        for name in sorted(missing)
        if name.startswith(("head.", "exits.")) or (name.startswith("albert.") and "pooler" not in name)
    ]
    if isinstance(network, AlbertForTask):
        needed += [name for name in sorted(missing) if "pooler" in name]
    return needed


def _incomplete(source: Path, received: str, layout: TensorNames) -> DamagedError:
    return DamagedError(
        "LB-660",
        f"{source} lacks weights that its network needs",
        received=received,
        expected="every tensor of the encoder, and of the head that config.json names",
        next=f'to read the encoder alone, set "architectures" to ["{layout.family}Model"] in config.json',
    )
