"""The tables of scale_map.md that follow only from the assumptions below: python -m
benchmarks.scale_map.
"""

import math

import torch

from benchmarks.measure import table
from benchmarks.steps import forward_flops
from litebert.config import PRESETS
from litebert.nn import AlbertForPretraining

GPUS = (8, 64, 512)
GPU_FLOPS = 990e12
UTILIZATION = 0.4
"""One H100 in bf16 without sparsity (data sheet), and the share of it that is assumed.
"""
NODE_BYTES = 450e9
NETWORK_BYTES = 50e9
"""Bytes per second in one direction for each GPU: inside a node, and 400 Gbit/s between
nodes.
"""
TOKENS_A_STEP = 4_096 * 512
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


def save_interval(
    gpus: int, save_seconds: float = SAVE_SECONDS
) -> tuple[float, float, float]:
    """Return the hours between failures, the best seconds between checkpoints, and the
    share of the time that is lost.

    Young 1974, Daly 2006.

    >>> round(save_interval(512, 1.0)[1])
    838
    """
    mean_time = FAILURE_HOURS * 3_600 / gpus
    half = save_seconds / (2 * mean_time)
    daly = math.sqrt(2 * save_seconds * mean_time) * (
        1 + math.sqrt(half) / 3 + half / 9
    )
    interval = daly - save_seconds
    lost = (interval / 2 + RESTART_SECONDS) / mean_time + save_seconds / (
        interval + save_seconds
    )
    return mean_time / 3_600, interval, lost


def computed_tables() -> str:
    """Return compute and network time of a step, and what failures cost, for each
    number of GPUs.
    """
    lines = []
    for name in ("base-v2", "xxlarge-v2"):
        model = PRESETS[name]
        with torch.device("meta"):
            gradient_bytes = 4 * sum(
                p.numel() for p in AlbertForPretraining(model).parameters()
            )
        # a token's forward pass at 512 pieces, the projection of embeddings not counted
        of_a_token = forward_flops(model, [512]) / 512 + 0.15 * forward_flops(
            model, [], 1
        )
        flops = (
            3
            * (of_a_token - 2 * model.embedding_size * model.hidden_size)
            * TOKENS_A_STEP
        )
        for gpus in GPUS:
            compute = flops / (gpus * GPU_FLOPS * UTILIZATION)
            sent = 2 * (gpus - 1) / gpus * gradient_bytes
            network = sent / (NODE_BYTES if gpus <= 8 else NETWORK_BYTES)
            share = f"{100 * compute / (compute + network):.0f} %"
            lines.append(
                [
                    name,
                    gpus,
                    _duration(compute),
                    f"{sent / 1e6:,.0f} MB",
                    _duration(network),
                    share,
                ]
            )
    header = [
        "network",
        "GPUs",
        "compute a step",
        "each GPU sends",
        "network",
        "share of the time that computes",
    ]
    times = table(header, lines)
    lines = []
    for gpus in GPUS:
        hours, every, lost = save_interval(gpus)
        shown = f"{every / 3_600:.1f} h" if every >= 3_600 else f"{every / 60:.0f} min"
        lines.append([gpus, f"{hours:,.0f}", shown, f"{100 * lost:.1f} %"])
    failures = table(
        ["GPUs", "hours between failures", "save every", "share of the time lost"],
        lines,
    )
    return f"{times}\n\n{failures}"


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds < 0.01 else f"{1e3 * seconds:.0f} ms"


if __name__ == "__main__":
    print(computed_tables())
