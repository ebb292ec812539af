"""The variables of Google's code that a model folder is exported to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import build_network, read_config, read_head, read_weights, widened
from litebert.folder.convert import canonical
from litebert.folder.names import tensor_names
from litebert.interop.google.bundle_writer import Variable
from litebert.interop.google.names import STEP, place
from litebert.interop.google.optimizer import read_optimizer
from litebert.nn import Network

FloatType = Literal["float32", "bfloat16"]
_POOLER = ("albert.pooler.weight", "albert.pooler.bias")


@dataclass(frozen=True)
class Outgoing:
    """The content of a checkpoint: views of the folder's tensors, each copied as it is written."""

    config: AlbertConfig
    variables: tuple[Variable, ...]
    num_parameters: int
    optimizer_step: int | None
    notes: tuple[str, ...]


def outgoing(folder: Path, *, dtype: FloatType, has_optimizer: bool) -> Outgoing:
    """Read a model folder and name its tensors as in Google's code; moments stay float32."""
    whole = read_weights(folder)
    tensors = {name: each for name, each in whole.items() if not name.startswith("exits.")}
    head = read_head(folder, tensors={name: tuple(each.shape) for name, each in tensors.items()})
    if head is not None and head.record.reads_texts:
        raise LitebertError(
            "LB-547",
            f"Google's code has no head like that of {folder}",
            received=f"a {head.kind} head",
            expected="a head on [CLS] or on tokens",
            next="fine-tune with model.pooling=cls to get one",
        )
    network = build_network(tensors, read_config(folder), head, source=folder).network
    places = _places(network)
    known = {*(tensor for copies in places.values() for tensor in copies), *_POOLER}
    weights = {
        name: widened(each, f"{folder}: {name}") for name, each in canonical(tensors, folder).items() if name in known
    }
    notes = _notes(places, weights, dtype)
    if len(tensors) < len(whole):
        notes.append("the heads after inner steps, which Google's graph does not have, are omitted")
    if network.albert.pooler is None and _POOLER[0] not in weights:
        notes.append("the pooler, which Google's graph has but this head does not use, is zeros")
        size = network.config.hidden_size
        weights |= dict(zip(_POOLER, (torch.zeros(size, size), torch.zeros(size)), strict=True))
    moments, step = _moments(folder, network, places) if has_optimizer else ({}, None)
    return Outgoing(
        network.config,
        (
            *(_variable(place(name).variable, name, each, dtype) for name, each in weights.items()),
            *(
                _variable(f"{place(name).variable}/{slot}", name, each, "float32")
                for (name, slot), each in moments.items()
                if name in weights
            ),
            Variable(STEP, np.array(step or 0, np.int64), "int64"),
        ),
        sum(each.numel() for each in weights.values()),
        step,
        tuple(notes),
    )


def _places(network: Network) -> dict[str, list[str]]:
    """Return the tensors on disk of each parameter; there are several if sharing is partial."""
    head = getattr(network, "head_config", None)
    return {name: tensor_names(name, network.config, head) for name in network.state_dict()}


def _moments(folder: Path, network: Network, places: dict[str, list[str]]) -> tuple[dict[tuple[str, str], Tensor], int]:
    """Return the optimizer's tensors by slot and the weight that they belong to."""
    tensors, step = read_optimizer(folder, network.state_dict(), network.config)
    named = {tuple(name.rsplit("/", 1)): tensor for name, tensor in tensors.items()}
    return {(places[name][0], slot): tensor for (name, slot), tensor in named.items()}, step


def _variable(name: str, tensor: str, values: Tensor, dtype: FloatType) -> Variable:
    array = values.numpy()
    return Variable(name, array.T if place(tensor).is_kernel else array, dtype)


def _notes(places: dict[str, list[str]], weights: dict[str, Tensor], dtype: FloatType) -> list[str]:
    notes = []
    missing = {name.rpartition(".")[0] for name, copies in places.items() if copies[0] not in weights}
    if missing:
        notes.append(f"not in the model: {', '.join(sorted(missing))}")
    if dtype == "bfloat16":
        notes.append("Google's graph has float32 variables: cast them when you restore bfloat16")
    return notes
