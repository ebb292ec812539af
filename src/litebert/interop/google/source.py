"""View a checkpoint as a model folder: tensors by Hugging Face's names, in our layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.fast.finite import require_finite
from litebert.interop.google.bundle import Bundle
from litebert.interop.google.names import HUB_PREFIX, OLD_BLOCK, SECOND_WORDS, STEP, WORDS, is_slot, place

_GROUP = re.compile(r"bert/encoder/transformer/group_(\d{1,6})/inner_group_(\d{1,6})/")


@dataclass(frozen=True)
class Checkpoint:
    """The variables of an ALBERT by official name; `stored` gives the name in the checkpoint."""

    bundle: Bundle
    stored: Mapping[str, str]

    @cached_property
    def is_old(self) -> bool:
        """Whether the layers have albert_zh's names, which are older than Google's."""
        return any(name.startswith(OLD_BLOCK) for name in self.stored)

    @property
    def is_folded(self) -> bool:
        """Whether words are mapped to width H before positions are added, as in albert_zh.

        The map has no bias and the masked LM scores words through it too, so that the product of
        table and map is the word table of a network with E = H that computes the same.
        """
        return SECOND_WORDS in self.stored

    @cached_property
    def blocks(self) -> set[tuple[int, int]]:
        """Group and inner group of every block that the names show."""
        found = [match.groups() for name in self.stored if (match := _GROUP.match(name))]
        return {(int(outer), int(inner)) for outer, inner in found} or {(0, 0)}

    @property
    def step(self) -> int | None:
        """The number of steps that the optimizer has done."""
        return self.bundle.read_count(self.stored[STEP]) if STEP in self.stored else None

    def name(self, tensor: str) -> str:
        """Return the official name of the variable that a tensor should be in."""
        return place(tensor, is_old=self.is_old).variable

    def dtype(self, name: str) -> str:
        """Return how a variable is stored."""
        return self.bundle.entries[self.stored[name]].dtype

    def variables_of(self, tensor: str, slot: str = "") -> list[str]:
        """Return the official names of the existing variables that a tensor is computed from.

        With `slot`, these are the optimizer's variables beside them.
        """
        name = self.name(tensor)
        if slot:
            return [f"{name}/{slot}"] if f"{name}/{slot}" in self.stored else []
        names = [WORDS, SECOND_WORDS] if name == WORDS and self.is_folded else [name]
        return [each for each in names if each in self.stored]

    def shape(self, tensor: str, slot: str = "") -> tuple[int, ...] | None:
        """Return the shape of a tensor in our layout; None if the checkpoint lacks it."""
        shapes = [self.bundle.entries[self.stored[name]].shape for name in self.variables_of(tensor, slot)]
        if not shapes:
            return None
        if len(shapes) == 2:  # the word table times its map
            (rows, *inner), (inner_too, *columns) = (shape or (0,) for shape in shapes)
            return (rows, *columns) if inner == [inner_too] else (rows, *inner, inner_too, *columns)
        return shapes[0][::-1] if place(tensor).is_kernel else shapes[0]

    def read(self, tensor: str, slot: str = "") -> NDArray[np.float32]:
        """Read a tensor in our layout.

        Raises:
            DamagedError: LB-722, its numbers are not finite.
        """
        first, *second = (self._read(name) for name in self.variables_of(tensor, slot))
        if second:
            return first @ second[0]
        return first.T if place(tensor).is_kernel else first

    def _read(self, name: str) -> NDArray[np.float32]:
        values = self.bundle.read(self.stored[name])
        require_finite(
            "LB-722",
            f"{self.bundle.prefix} has weights that are not finite",
            {name: values},
            expected="finite weights",
            next="fetch the checkpoint again, or take an earlier one",
        )
        return values


def albert_in(bundle: Bundle) -> Checkpoint:
    """Return the variables of a checkpoint by official name.

    Raises:
        LitebertError: LB-719, they are not those of an ALBERT.
    """
    stored = {name.removeprefix(HUB_PREFIX): name for name in bundle.entries}
    source = Checkpoint(bundle, stored)
    is_albert = WORDS in stored and (source.is_old or any(map(_GROUP.match, stored)))
    if is_albert and len(stored) == len(bundle.entries):
        return source
    weights = [name for name in bundle.entries if not is_slot(name)]
    raise LitebertError(
        "LB-719",
        f"{bundle.prefix} is not a checkpoint of an ALBERT",
        received=f"{len(weights)} variables, {', '.join(weights)}",
        expected=f"{WORDS}, bert/encoder/transformer/group_0/..., as Google's code names them",
        next="give a checkpoint of google-research/albert or of albert_zh",
    )


def require_groups(source: Checkpoint, config: AlbertConfig) -> None:
    """Refuse a configuration whose layers are not the checkpoint's.

    Raises:
        LitebertError: LB-720.
    """
    groups, inner = config.num_hidden_groups, config.inner_group_num
    last_group, last_inner = max(source.blocks)
    if (groups, inner) != (last_group + 1, last_inner + 1) or len(source.blocks) != groups * inner:
        raise LitebertError(
            "LB-720",
            f"{source.bundle.prefix} has other layers than its configuration says",
            received=f"{len(source.blocks)} blocks, up to group {last_group}, inner {last_inner}",
            expected=f"num_hidden_groups {groups} times inner_group_num {inner}, counted from 0",
            next="give the configuration that belongs to the checkpoint with --config",
        )
