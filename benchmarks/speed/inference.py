"""The encoder on rectangles, and on real texts as they arrive, with every rival in one
process.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.speed import rivals
from benchmarks.speed.rows import Contender, Row, added, compare
from benchmarks.steps import forward_flops
from benchmarks.texts import VOCABULARY, Texts, arriving, made_up
from litebert.config import AlbertConfig
from litebert.folder import read_config

RECTANGLES = ((1, 16), (1, 128), (1, 512), (8, 128))
STREAMS = {"SST-2": (4, 2), "NLI": (3, 2), "IMDB": (1, 1)}
"""Batches of 16, and rounds after a first one; a quick run takes a batch of each, and
no IMDB.
"""


@torch.inference_mode()
def measure(root: Path, *, is_quick: bool, names: Sequence[str]) -> list[Row]:
    """Time every rival on every work, and compare its outputs token by token."""
    chosen = {name: rivals.load(name, root) for name in names}
    config = read_config(root / "model")
    timed = partial(_timed, chosen, config)
    rows = list[Row]()
    for count, length in RECTANGLES:
        texts = made_up([length] * count)
        rows += timed(f"{count} x {length}", texts, seconds=4 if is_quick else 12)
    if not VOCABULARY.is_file():
        print("no real texts: set LITEBERT_TEST_DATA")
        return rows
    corpora = list[list[Row]]()
    for corpus, (number, rounds) in STREAMS.items():
        if is_quick and corpus == "IMDB":
            continue
        batches = arriving(corpus, num_batches=1 if is_quick else number)
        parts = [timed(corpus, texts, rounds=rounds) for texts in batches]
        corpora.append(added(corpus, parts))
        rows += corpora[-1]
    return rows + added("stream", corpora)


def _timed(
    chosen: Mapping[str, rivals.Rival],
    config: AlbertConfig,
    work: str,
    texts: Texts,
    **turns: float,
) -> list[Row]:
    """Return a row for each rival on one batch."""
    contenders = list[Contender]()
    for name, rival in chosen.items():
        call = rival.ready(texts)
        contenders.append(Contender(name, call, partial(_states, rival, call, texts)))
    flops = forward_flops(config, texts.lengths)
    return compare(work, contenders, num_tokens=texts.num_tokens, flops=flops, **turns)


def _states(
    rival: rivals.Rival, call: rivals.Call, texts: Texts
) -> NDArray[np.float32]:
    return rival.states(call(), texts)
