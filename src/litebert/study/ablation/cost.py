"""The cost of a row, predicted from its FLOPs and from the speed of training on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.fast import accelerate
from litebert.fast.steps import DTYPES
from litebert.nn import AlbertForPretraining, Batch
from litebert.study.ablation.grid import Scale, Words
from litebert.study.sizes import MASKED_SHARE, forward_flops
from litebert.train.run import threads

_PROBE_TOKENS = 1_024


@dataclass(frozen=True)
class Cost:
    """The compute of one training, and the CPU time that it will take on this machine."""

    flops: float
    cpu_seconds: float


def training_flops(words: Words) -> float:
    """Return the FLOPs of a training: three forward passes for every token, plus extras."""
    config = _config(words)
    length = config.objective.max_seq_length
    tokens = config.train.steps * config.train.batch_size * length
    return passes(config) * forward_flops(config.model, seq_length=length) * tokens


def passes(config: PretrainConfig) -> float:
    """Return the cost of a step in forward passes of the full depth; a backward pass costs two.

    Hard-example mining adds a forward pass per candidate; elastic depth omits steps.

    >>> settings = ["data.corpus=none", "model.num_hidden_layers=4", "elastic.least_depth=1"]
    >>> passes(resolve(PretrainConfig, settings_from_words(settings)).config)
    2.25
    """
    full = config.model.num_steps
    least = config.elastic.least_depth or full
    depth = 1.0
    if least < full:
        depth = (1 + (least + full - 1) / 2 / full) / 2
    chosen = config.mining.pool if config.mining.pool > 1 else 0
    return 3 * depth + chosen


def measured_rate(scale: Scale) -> float:
    """Return the FLOPs per CPU second of training steps of the scale's base network."""
    config = _config((*scale.training, *scale.network(scale.base)))
    precision = DTYPES["bf16" if config.train.precision == "bf16" else "fp32"]
    length = config.objective.max_seq_length
    network = AlbertForPretraining(config.model, dtype=precision)
    accelerate(network)
    network.train()
    batch = Batch.from_lists([[5] * length] * max(1, _PROBE_TOKENS // length))
    masked = torch.arange(0, len(batch.ids), round(1 / MASKED_SHARE))
    seconds = []
    with threads(config.train.threads):  # waiting threads would count as CPU time, too
        for _ in range(3):
            begun = time.process_time()
            output = network(batch, masked)
            loss = output.masked_lm.float().logsumexp(-1).sum() + output.sentence_order.sum()
            loss.backward()
            seconds.append(time.process_time() - begun)
    flops = 3.0 * forward_flops(config.model, seq_length=length) * len(batch.ids)
    return flops / min(seconds)


def predicted(words: Words, rate: float) -> Cost:
    """Return the cost of a row at a rate in FLOPs per CPU second."""
    flops = training_flops(words)
    return Cost(flops, flops / rate)


def _config(words: Words) -> PretrainConfig:
    given = settings_from_words(["data.corpus=none", *words])
    return resolve(PretrainConfig, given).config
