"""The encoder on rectangles, and on real texts as they arrive, with every rival in one
process.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.speed import rivals
from benchmarks.speed.rows import Contender, Row, added, compare
from benchmarks.steps import forward_flops
from benchmarks.texts import VOCABULARY, Texts, arriving, made_up
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
    rows = list[Row]()

    def timed(work: str, texts: Texts, **turns: float) -> list[Row]:
        contenders = []
        for name, rival in chosen.items():
            call = rival.ready(texts)
            contenders.append(
                Contender(
                    name, call, partial(lambda r, c: r.states(c(), texts), rival, call)
                )
            )
        flops = forward_flops(config, texts.lengths)
        return compare(
            work, contenders, num_tokens=texts.num_tokens, flops=flops, **turns
        )

    for count, length in RECTANGLES:
        rows += timed(
            f"{count} x {length}",
            made_up([length] * count),
            seconds=4 if is_quick else 12,
        )
    if not VOCABULARY.is_file():
        print("no real texts: set LITEBERT_TEST_DATA")
        return rows
    corpora = []
    for corpus, (number, rounds) in STREAMS.items():
        if not (is_quick and corpus == "IMDB"):
            batches = arriving(corpus, num_batches=1 if is_quick else number)
            corpora.append(
                added(
                    corpus, [timed(corpus, texts, rounds=rounds) for texts in batches]
                )
            )
    return [
        *rows,
        *(row for part in corpora for row in part),
        *added("stream", corpora),
    ]
