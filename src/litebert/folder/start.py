"""Copy the weights of a model on disk into a network that is to be trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from litebert.folder.model import head_of, load_model
from litebert.nn import Network

_BY_PIECE = ("albert.embedding.word.weight", "masked_lm.bias")
"""Parameters with one row per piece."""


@dataclass(frozen=True)
class Start:
    """Which parameters were not copied: `fresh` ones stay random, `dropped` ones are not used.

    `notes` are those of the loaded model.
    """

    fresh: tuple[str, ...]
    dropped: tuple[str, ...]
    notes: tuple[str, ...] = ()


@torch.no_grad()
def start_from(network: Network, folder: Path, *, rows: Sequence[Sequence[int]] | None = None) -> Start:
    """Copy the folder's encoder into a network, and its head if both heads are the same.

    A head of another kind, or with other labels, is dropped and reported: thus RTE starts from MNLI
    (paper, footnote 4). Only pretraining heads and the pooler may be missing in the folder.

    For a new vocabulary, `rows` has the former pieces of each piece, which gets their mean.
    """
    loaded = load_model(folder)
    ours = network.state_dict()
    has_same_head = head_of(network) == head_of(loaded.network)
    theirs = {name: tensor for name, tensor in loaded.network.state_dict().items() if name not in loaded.missing}
    for name in _BY_PIECE if rows is not None else ():
        if name in theirs:
            former = theirs[name]
            theirs[name] = torch.stack([former[list(ids)].mean(0) for ids in rows or ()])
    heads = ("head.", "exits.")
    taken = {n for n in theirs if n in ours and (has_same_head or not n.startswith(heads))}
    for name in taken:
        ours[name].copy_(theirs[name])
    return Start(fresh=tuple(sorted(set(ours) - taken)), dropped=tuple(sorted(set(theirs) - taken)), notes=loaded.notes)
