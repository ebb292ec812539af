"""The tables of scale_map.md that follow only from the assumptions below: python -m
benchmarks.scale_map.
"""

import math
from typing import NamedTuple

import torch

from benchmarks.measure import table
from benchmarks.steps import forward_flops
from litebert.config import PRESETS, AlbertConfig
from litebert.nn import AlbertForPretraining

GPUS = (8, 64, 512)
GPUS_A_NODE = 8
GPU_FLOPS = 990e12
UTILIZATION = 0.4
"""One H100 in bf16 without sparsity (data sheet), and the share of it that is assumed.
"""
NODE_BYTES = 450e9
NETWORK_BYTES = 50e9
"""Bytes per second in one direction for each GPU: inside a node, and 400 Gbit/s between
nodes.
"""
LENGTH = 512
TOKENS_A_STEP = 4_096 * LENGTH
MASKED_SHARE = 0.15
SAVE_SECONDS = 5.0
RESTART_SECONDS = 120.0
"""Assumed cost of a checkpoint of xxlarge and of a restart, to compute the best
interval between checkpoints.
"""
FAILURE_HOURS = 50_000
"""Mean time between failures of one GPU with its share of the node (Llama 3, arXiv
2407.21783: 419 unexpected interruptions of 16,384 GPUs in 54 days, one in about 50,000
GPU hours).
"""


def computed_tables() -> str:
    """Return compute and network time of a step, and what failures cost, for each
    number of GPUs.
    """
    return f"{times_table()}\n\n{failures_table()}"


# ---- the time of a step --------------------------------------------------------------


def times_table() -> str:
    header = [
        "network",
        "GPUs",
        "compute a step",
        "each GPU sends",
        "network",
        "share of the time that computes",
    ]
    lines = list[list[object]]()
    for name in ("base-v2", "xxlarge-v2"):
        flops = step_flops(PRESETS[name])
        gradient_bytes = 4 * num_parameters(PRESETS[name])
        for gpus in GPUS:
            compute = flops / (gpus * GPU_FLOPS * UTILIZATION)  # seconds
            sent = 2 * (gpus - 1) / gpus * gradient_bytes  # by a ring
            rate = NODE_BYTES if gpus <= GPUS_A_NODE else NETWORK_BYTES
            network = sent / rate
            share = compute / (compute + network)
            lines.append(
                [
                    name,
                    gpus,
                    _duration(compute),
                    f"{sent / 1e6:,.0f} MB",
                    _duration(network),
                    f"{100 * share:.0f} %",
                ]
            )
    return table(header, lines)


def step_flops(config: AlbertConfig) -> float:
    """Return the FLOPs of a step; the projection of the embeddings is not counted."""
    encoder = forward_flops(config, [LENGTH]) / LENGTH  # of a token, forward
    masked_words = MASKED_SHARE * forward_flops(config, [], num_masked=1)
    projection = 2 * config.embedding_size * config.hidden_size
    return 3 * (encoder + masked_words - projection) * TOKENS_A_STEP


def num_parameters(config: AlbertConfig) -> int:
    with torch.device("meta"):
        network = AlbertForPretraining(config)
    return sum(parameter.numel() for parameter in network.parameters())


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds >= 0.01:
        return f"{1e3 * seconds:.0f} ms"
    return f"{1e3 * seconds:.1f} ms"


# ---- what failures cost --------------------------------------------------------------


class SaveInterval(NamedTuple):
    """How often a number of GPUs should save a checkpoint."""

    failure_hours: float  # between failures of any of the GPUs
    seconds: float  # between checkpoints
    lost: float  # share of the time


def failures_table() -> str:
    header = ["GPUs", "hours between failures", "save every", "share of the time lost"]
    lines = list[list[object]]()
    for gpus in GPUS:
        best = save_interval(gpus)
        shown = f"{best.seconds / 60:.0f} min"
        if best.seconds >= 3_600:
            shown = f"{best.seconds / 3_600:.1f} h"
        hours = f"{best.failure_hours:,.0f}"
        lines.append([gpus, hours, shown, f"{100 * best.lost:.1f} %"])
    return table(header, lines)


def save_interval(gpus: int, save_seconds: float = SAVE_SECONDS) -> SaveInterval:
    """Return the interval that loses least time to checkpoints and failures (Young
    1974, Daly 2006).

    >>> round(save_interval(512, 1.0).seconds)
    838
    """
    mean_time = FAILURE_HOURS * 3_600 / gpus  # seconds between failures
    half = save_seconds / (2 * mean_time)
    series = 1 + math.sqrt(half) / 3 + half / 9
    interval = math.sqrt(2 * save_seconds * mean_time) * series - save_seconds
    repeated = (interval / 2 + RESTART_SECONDS) / mean_time
    saving = save_seconds / (interval + save_seconds)
    return SaveInterval(mean_time / 3_600, interval, repeated + saving)


if __name__ == "__main__":
    print(computed_tables())
