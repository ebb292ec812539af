"""A ragged batch: the tokens of all sequences lie end to end, so nothing is computed
for padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from litebert.device import CPU_TOKENS, Device, device_at
from litebert.errors import LitebertError

_FEWEST_ROWS = 4  # of a matrix product in inference, see `pad_rows`


@dataclass(frozen=True)
class Batch:
    """Sequences end to end: sequence i is `ids[offsets[i] : offsets[i + 1]]`.

    >>> Batch.from_lists([[2, 7, 3], [2, 8, 9, 3]]).offsets.tolist()
    [0, 3, 7]
    """

    ids: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]  # of each token within its sequence
    segments: Int[Tensor, " tokens"]
    offsets: Int[Tensor, " boundaries"]
    # on the host, so that choosing a kernel never waits for the device
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not all(self.lengths):
            raise LitebertError(
                "LB-450",
                "a batch cannot hold an empty sequence",
                next="encode with frame=True",
            )

    @classmethod
    def from_lists(
        cls,
        ids: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
    ) -> "Batch":
        """Join lists of ids and of segment ids (default 0)."""
        lengths = tuple(map(len, ids))
        flat = torch.tensor([*chain(*ids)], dtype=torch.int64)  # (tokens,)
        types = torch.zeros_like(flat)
        if segments is not None:
            types = torch.tensor([*chain(*segments)], dtype=torch.int64)
        # 0, 1, 2, ... of each sequence: (tokens,)
        positions = torch.tensor([*chain(*map(range, lengths))], dtype=torch.int64)
        # where each sequence begins, and the end of the last: (sequences + 1,)
        offsets = torch.tensor([0, *accumulate(lengths)])
        return cls(flat, positions, types, offsets, lengths)

    @classmethod
    def from_padded(
        cls,
        ids: Int[Tensor, "sequences width"],
        mask: Shaped[Tensor, "sequences width"] | None = None,
        segments: Int[Tensor, "sequences width"] | None = None,
    ) -> "Batch":
        """Drop the padding, where the mask is 0; the position of a token is its
        column.
        """
        keep = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        types = torch.zeros_like(ids) if segments is None else segments
        sizes = keep.sum(1)  # (sequences,)
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])  # (sequences + 1,)
        # Row by row, so that the tokens of a sequence stay together; holes in a mask
        # leave holes in the positions, as in transformers.
        columns = keep.nonzero()[:, 1]  # (tokens,)
        return cls(ids[keep], columns, types[keep], offsets, tuple(sizes.tolist()))

    def to_padded(
        self, values: Shaped[Tensor, "tokens ..."], *, width: int | None = None
    ) -> Shaped[Tensor, "sequences width ..."]:
        """Lay per-token values out as a rectangle, with zeros where there is no
        token.
        """
        num_columns = width
        if num_columns is None:
            num_columns = int(self.positions.max()) + 1  # waits for a GPU
        # One row per sequence, with each token in the column of its position: what
        # from_padded dropped stays zero.
        rectangle = values.new_zeros(len(self.lengths), num_columns, *values.shape[1:])
        return rectangle.index_put((sequence_of(self), self.positions), values)

    def to(self, device: Device | torch.device | str) -> "Batch":
        """Return the batch on a device: itself if it is already there."""
        if not isinstance(device, Device):
            device = device_at(torch.device(device))
        if self.ids.device == device.place:
            return self
        return Batch(
            ids=device.copy(self.ids),
            positions=device.copy(self.positions),
            segments=device.copy(self.segments),
            offsets=device.copy(self.offsets),
            lengths=self.lengths,
        )

    @property
    def first_tokens(self) -> Int[Tensor, " sequences"]:
        """Index of the first token, [CLS], of every sequence."""
        return self.offsets[:-1]


def sequence_of(batch: Batch) -> Int[Tensor, " tokens"]:
    """Return the index of each token's sequence; the result's size is known, so the
    host never waits for a GPU.
    """
    numbers = torch.arange(len(batch.lengths), device=batch.offsets.device)
    return numbers.repeat_interleave(batch.offsets.diff(), output_size=len(batch.ids))


def pool_rows(
    hidden: Float[Tensor, "tokens hidden"], batch: Batch, pooling: str
) -> Float[Tensor, "sequences hidden"]:
    """Return one vector per sequence: the state of its [CLS] ("cls"), or the "mean" or
    "max" of its states.
    """
    if pooling == "cls":
        return hidden[batch.first_tokens]
    sizes = batch.offsets.diff()  # (sequences,), in tokens
    if device_at(hidden.device).is_cpu:
        return torch.segment_reduce(hidden, pooling, lengths=sizes)
    # On a GPU `segment_reduce` makes the host wait twice, and Apple's do not have it.
    sequences = sequence_of(batch)
    vectors = hidden.new_zeros(len(batch.lengths), hidden.shape[1])
    if pooling == "mean":
        return vectors.index_add(0, sequences, hidden) / sizes[:, None]
    places = sequences[:, None].expand_as(hidden)
    return vectors.scatter_reduce(0, places, hidden, "amax", include_self=False)


def group_by_length(
    lengths: Sequence[int], tokens_at_once: int = CPU_TOKENS
) -> Iterator[list[int]]:
    """Yield groups of indices of similar length, longest first, each of at most
    `tokens_at_once` tokens (`Device.tokens_at_once`), padding included.

    >>> list(group_by_length([3, 9, 5]))
    [[1, 2, 0]]
    """
    group: list[int] = []
    # The first of a group is its longest, to which the others are padded.
    for number in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if group and (len(group) + 1) * lengths[group[0]] > tokens_at_once:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def pad_rows(values: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "more_rows ..."]:
    """Append zero rows, which belong to no sequence, to reach one of at most 16 row
    counts per power of two and, in inference, 4 rows.

    Matrix kernels are compiled or selected per shape, and a ragged batch has a new
    shape in every step. On a CPU in bf16, the first product of a shape takes about five
    times as long as later ones. At most 1/16 more rows are added.

    A product of one to three rows takes another kernel than one of more, which adds in
    another order: the numbers of a text would depend on its batch. In training, dropout
    draws a number for every row, so that more rows would change the run.

    >>> [len(pad_rows(torch.ones(rows))) for rows in (3, 16, 100, 4_001)]
    [3, 16, 100, 4096]
    """
    rows = values.shape[0]  # len() of a tensor takes 1 us, as long as a small kernel
    # the power of two that is between a thirty-second and a sixteenth of the rows
    multiple = 1 << max(0, (rows // 16).bit_length() - 1)
    missing = -rows % multiple
    if not torch.is_grad_enabled():
        missing = max(missing, _FEWEST_ROWS - rows)
    if not missing:
        return values
    # Two numbers for each axis, before and after it, the last axis first.
    return F.pad(values, (0, 0) * (values.ndim - 1) + (0, missing))
