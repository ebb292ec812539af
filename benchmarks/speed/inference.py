"""The encoder on rectangles, and on real texts as they arrive, every rival in one process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.speed import rivals, yardstick
from benchmarks.speed.rivals import Rival
from benchmarks.speed.rows import Contender, Row, added, compare
from benchmarks.speed.texts import VOCABULARY, Texts, arriving, rectangle
from benchmarks.speed.timing import Turns
from litebert.config import AlbertConfig
from litebert.folder import read_config

RECTANGLES = ((1, 16), (1, 128), (1, 512), (8, 128))
STREAMS = {"SST-2": (4, 2), "NLI": (3, 2), "IMDB": (1, 1)}
"""Batches of 16, and rounds after a first one; a quick run takes a batch of each, and no IMDB."""


@torch.inference_mode()
def measure(root: Path, threads: int, *, is_quick: bool, names: Sequence[str]) -> list[Row]:
    """Time every rival on every work."""
    chosen = {name: loaded(name, root) for name in names}
    config, rows = read_config(root / "model"), list[Row]()
    for num_sequences, length in RECTANGLES:
        turns = Turns(threads, seconds=4.0 if is_quick else 12.0)
        texts = rectangle(num_sequences, length)
        rows += said(timed(f"{num_sequences} x {length}", texts, chosen, turns, config))
    if not VOCABULARY.is_file():
        print("no real texts: set LITEBERT_TEST_DATA")
        return rows
    corpora = []
    for corpus, (number, rounds) in STREAMS.items():
        if is_quick and corpus == "IMDB":
            continue
        turns = Turns(threads, seconds=0.0, least=rounds)
        batches = arriving(corpus, num_batches=1 if is_quick else number)
        parts = [timed(corpus, texts, chosen, turns, config) for texts in batches]
        corpora.append(said(added(corpus, parts)))
    return [*rows, *(row for part in corpora for row in part), *said(added("stream", corpora))]


def loaded(name: str, root: Path) -> Rival:
    """Load a rival and say how long that took."""
    start = time.perf_counter()
    rival = rivals.load(name, root)
    print(f"{name} loaded in {time.perf_counter() - start:.1f} s", flush=True)
    return rival


def timed(work: str, texts: Texts, chosen: Mapping[str, Rival], turns: Turns, config: AlbertConfig) -> list[Row]:
    """Compare all rivals on one batch."""
    return compare(
        work,
        [contender(name, rival, texts) for name, rival in chosen.items()],
        turns,
        num_tokens=texts.num_tokens,
        flops=yardstick.forward_flops(config, texts.lengths),
    )


def contender(name: str, rival: Rival, texts: Texts) -> Contender:
    """Give a rival its inputs; what it computes is compared token by token."""
    call = rival.ready(texts)
    return Contender(name, call, lambda: rival.states(call(), texts))


def said(rows: list[Row]) -> list[Row]:
    """Print rows as soon as they are there."""
    print(*rows, sep="\n", flush=True)
    return rows
