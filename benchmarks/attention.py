"""Attention in training on one core, beside other ways to compute the same: python -m
benchmarks.attention.

A step is the loss of masked words and order, and its gradients. Times are CPU times, in
turns; a ratio is that of a round to litebert's in the same round, the median of all.
Tokens of texts with many lengths come end to end, so attention is called for each run of
equal lengths: a stack.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, groupby
from statistics import median
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import machine, table, take_turns
from benchmarks.steps import DTYPES, our_step
from benchmarks.texts import Texts, made_up
from litebert.cli.command import command_of
from litebert.config import preset
from litebert.fast.attention import AttentionKind, Layout
from litebert.nn import AlbertForPretraining
from litebert.plugins import ATTENTION_KINDS

VOCAB_SIZE = 16_000
LENGTHS = range(8, 200)
REFERENCE = "full"  # litebert's


def main(*, presets: str = "mini,small", rounds: int = 7) -> None:
    """Time the kinds in turns, and print the table."""
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    works = {"32 x 128": [128] * 32, "64 of 8 to 199": many_lengths(64)}
    lines = list[list[str]]()
    for name in presets.split(","):
        for work, lengths in works.items():
            texts = made_up(lengths, vocab_size=VOCAB_SIZE)
            for precision in DTYPES:
                labels = [name, work, precision]
                for row in compare(name, texts, precision, rounds):
                    lines.append(labels + row)
    header = ["preset", "texts", "precision", "attention", "ms, least", "ratio"]
    print(table(header, lines))


def many_lengths(count: int) -> list[int]:
    """Return lengths in ascending order, short ones more often than long ones."""
    weights = [LENGTHS.stop - length for length in LENGTHS]
    return sorted(random.Random(1).choices(LENGTHS, weights, k=count))


def compare(name: str, texts: Texts, precision: str, rounds: int) -> list[list[str]]:
    """Return a row of the table for each kind of attention."""
    steps = dict[str, partial[None]]()
    for kind in (REFERENCE, *OTHERS):
        settings = {"vocab_size": VOCAB_SIZE, "attention": kind}
        torch.manual_seed(1)
        network = AlbertForPretraining(
            preset(name).model_copy(update=settings), dtype=DTYPES[precision]
        )
        step = our_step(network, texts, by_trainer=False)
        steps[kind] = partial(gradients, network, step.backward)
    times = take_turns(steps, rounds=rounds, warm_ups=1)
    rows = list[list[str]]()
    for kind, seconds in times.items():
        pairs = zip(seconds, times[REFERENCE], strict=True)
        ratio = median(spent / reference for spent, reference in pairs)
        rows.append([kind, f"{1e3 * min(seconds):.0f}", f"{ratio:.2f}"])
    return rows


def gradients(network: AlbertForPretraining, backward: partial[None]) -> None:
    network.zero_grad(set_to_none=True)
    backward()


# ---- other ways ----------------------------------------------------------------------

Stack: TypeAlias = tuple[int, int, int]
"""A number of sequences, and the queries and keys of each."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: Layout,
    dropout_prob: float,
    *,
    stacks_of: Callable[[Layout], list[Stack]],
    cut: Callable[[Tensor, list[int]], Sequence[Tensor]],
) -> Tensor:
    """Attend to each stack by torch's fused kernel, in the precision of the rows."""
    stacks = stacks_of(layout)
    query_rows = [count * num_queries for count, num_queries, _ in stacks]
    key_rows = [count * num_keys for count, _, num_keys in stacks]
    queries = cut(query, query_rows)
    keys = cut(key, key_rows)
    values = cut(value, key_rows)
    mixed = list[Tensor]()
    for number, (count, *_) in enumerate(stacks):
        # (sequences, heads, length, head_size)
        q = in_sequences(queries[number], count)
        k = in_sequences(keys[number], count)
        v = in_sequences(values[number], count)
        result = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_prob)
        mixed.append(result.transpose(1, 2).flatten(0, 1))
    return torch.cat(mixed)


def in_sequences(rows: Tensor, count: int) -> Tensor:
    return rows.view(count, -1, *rows.shape[1:]).transpose(1, 2)


def equal_neighbors(layout: Layout) -> list[Stack]:
    lengths = zip(layout.query_lengths, layout.batch.lengths, strict=True)
    stacks = list[Stack]()
    for (num_queries, num_keys), run in groupby(lengths):
        count = sum(1 for _ in run)
        stacks.append((count, num_queries, num_keys))
    return stacks


def each_alone(layout: Layout) -> list[Stack]:
    lengths = zip(layout.query_lengths, layout.batch.lengths, strict=True)
    return [(1, num_queries, num_keys) for num_queries, num_keys in lengths]


def slices(rows: Tensor, sizes: list[int]) -> list[Tensor]:
    ends = list(accumulate(sizes))
    return [rows[end - size : end] for size, end in zip(sizes, ends, strict=True)]


OTHERS = {
    "fused": partial(attend, stacks_of=equal_neighbors, cut=torch.split),
    "sliced": partial(attend, stacks_of=equal_neighbors, cut=slices),
    "one by one": partial(attend, stacks_of=each_alone, cut=torch.split),
}
for name, kernel in OTHERS.items():
    ATTENTION_KINDS.add(name, AttentionKind(visible=None, attend=kernel))


if __name__ == "__main__":
    command_of(main, "attention")()
