"""The numbers of docs/scale.md.

    python -m benchmarks.scale_map              the tables that need no measurement, in Markdown
    python -m benchmarks.scale_map --sampler    memory and start of the sampler, as JSON

The tables follow from the named assumptions below. Extrapolations are linear, and say so.
"""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.measure import table
from benchmarks.steps import forward_flops
from litebert.cli.command import command_of
from litebert.config import PRESETS, ObjectiveConfig
from litebert.corpus import Shard
from litebert.nn import AlbertForPretraining
from litebert.objectives import Loader, Vocabulary, sentence_objective
from litebert.objectives.windows import WINDOW_PIECES, ShardSizes, Windowed, WindowOrder, estimated_samples

DOCUMENTS = (10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
SHARD_DOCUMENTS = 134_000
SENTENCES_A_DOCUMENT, PIECES_A_SENTENCE = 20, 25
GPUS = (8, 64, 512)
GPU_FLOPS, UTILISATION = 990e12, 0.4
"""One H100 in bf16 without sparsity (data sheet), and the share of it that is assumed."""
NODE_BYTES, NETWORK_BYTES = 450e9, 50e9
"""Bytes a second in one direction for each GPU: inside a node, and 400 Gbit/s between nodes."""
TOKENS_A_STEP = 4_096 * 512
SAVE_SECONDS, RESTART_SECONDS = 5.0, 120.0
"""What a checkpoint of xxlarge and a restart are taken to cost where the best time between two is computed."""
FAILURE_HOURS = 50_000
"""Mean time between failures of one GPU with its share of the node (Llama 3, arXiv 2407.21783: 419
unexpected interruptions of 16,384 GPUs in 54 days, one in about 50,000 GPU hours)."""


def open_sampler(num_documents: int) -> dict[str, float]:
    """Open the sampler of a corpus of so many documents, and draw a batch.

    Every shard shows the same arrays, which stand for files that are mapped: they are not counted.
    """
    config, sentence = ObjectiveConfig(), sentence_objective("order")
    documents = min(num_documents, SHARD_DOCUMENTS)
    sentences = documents * SENTENCES_A_DOCUMENT
    pieces = sentences * PIECES_A_SENTENCE
    shard = Shard(
        np.broadcast_to(np.uint16(5), pieces),
        np.arange(sentences + 1, dtype=np.int64) * PIECES_A_SENTENCE,
        np.arange(documents + 1, dtype=np.int64) * SENTENCES_A_DOCUMENT,
        _Unchanged(),  # type: ignore[arg-type]
    )
    count = math.ceil(num_documents / documents)
    tracemalloc.start()
    begun = time.process_time()
    sizes = [ShardSizes(documents, sentences, pieces)] * count
    order = WindowOrder(estimated_samples(sizes, config, sentence), (pieces,) * count, WINDOW_PIECES, 1, "train")

    def open_loader(shards: Sequence[Shard], purpose: str, _early: int) -> Loader:
        vocabulary = Vocabulary(10, 2, 3, 4, np.ones(10, np.bool_))
        return Loader(shards, vocabulary=vocabulary, config=config, batch_size=32, seed=1, purpose=purpose)

    windowed = Windowed(order, lambda numbers: [shard] * len(numbers), open_loader, batch_size=32)
    windowed.batch(0)
    seconds = time.process_time() - begun
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "documents": num_documents,
        "instances": windowed.epoch_size,
        "windows": len(order.windows(0)),
        "cpu_seconds_to_the_first_batch": seconds,
        "held_megabytes": held / 1e6,
        "peak_megabytes": peak / 1e6,
    }


class _Unchanged:
    """Stands in for the files of a shard that lies in memory."""

    def require_unchanged(self) -> None:
        """Find nothing changed."""


def save_interval(gpus: int, save_seconds: float = SAVE_SECONDS) -> tuple[float, float, float]:
    """Return the hours between failures, the best seconds between checkpoints, and the share of the time that is lost.

    Young 1974, Daly 2006.

    >>> round(save_interval(512, 1.0)[1])
    838
    """
    mean_time = FAILURE_HOURS * 3_600 / gpus
    half = save_seconds / (2 * mean_time)
    daly = math.sqrt(2 * save_seconds * mean_time) * (1 + math.sqrt(half) / 3 + half / 9)
    interval = daly - save_seconds
    lost = (interval / 2 + RESTART_SECONDS) / mean_time + save_seconds / (interval + save_seconds)
    return mean_time / 3_600, interval, lost


def computed_tables() -> str:
    """Return the tables of docs/scale.md that follow from the assumptions above alone."""
    lines = []
    for name in ("base-v2", "xxlarge-v2"):
        model = PRESETS[name]
        with torch.device("meta"):
            gradient_bytes = 4 * sum(p.numel() for p in AlbertForPretraining(model).parameters())
        # a token's forward pass at 512 pieces, the projection of embeddings not counted
        of_a_token = forward_flops(model, [512]) / 512 + 0.15 * forward_flops(model, [], 1)
        flops = 3 * (of_a_token - 2 * model.embedding_size * model.hidden_size) * TOKENS_A_STEP
        for gpus in GPUS:
            compute, sent = flops / (gpus * GPU_FLOPS * UTILISATION), 2 * (gpus - 1) / gpus * gradient_bytes
            network = sent / (NODE_BYTES if gpus <= 8 else NETWORK_BYTES)
            share = f"{100 * compute / (compute + network):.0f} %"
            lines.append([name, gpus, _duration(compute), f"{sent / 1e6:,.0f} MB", _duration(network), share])
    header = ["network", "GPUs", "compute a step", "each GPU sends", "network", "share of the time that computes"]
    times, lines = table(header, lines), []
    for gpus in GPUS:
        hours, every, lost = save_interval(gpus)
        shown = f"{every / 3_600:.1f} h" if every >= 3_600 else f"{every / 60:.0f} min"
        lines.append([gpus, f"{hours:,.0f}", shown, f"{100 * lost:.1f} %"])
    failures = table(["GPUs", "hours between failures", "save every", "share of the time lost"], lines)
    return f"{times}\n\n{failures}"


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds < 0.01 else f"{1e3 * seconds:.0f} ms"


def main(*, sampler: bool = False) -> None:
    """Print the computed tables, or what the sampler takes."""
    print(json.dumps([open_sampler(number) for number in DOCUMENTS], indent=2) if sampler else computed_tables())


if __name__ == "__main__":
    command_of(main, "scale_map")()
