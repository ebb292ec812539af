"""The paper's claims of speed and cost, measured: training step, inference, memory, gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from pydantic import BaseModel

from litebert.config import AlbertConfig, Precision, preset
from litebert.fast import accelerate, pack
from litebert.fast.steps import DTYPES
from litebert.nn import AlbertForPretraining, Batch
from litebert.study.sizes import MASKED_SHARE, forward_flops, sizes_of

GIGABITS = (1, 10, 100)
SEED = 12_345


@dataclass(frozen=True)
class Claim:
    """A network and the one that the paper compares it with; `paper` is a ratio of speeds."""

    name: str
    config: AlbertConfig
    beside: str
    beside_config: AlbertConfig
    paper: float


def paper_claims() -> tuple[Claim, ...]:
    """Return the two claims of paper 4.3 (Table 2): 1.7 times faster, about 3 times slower."""
    bert = preset("bert-large")
    return (
        Claim("ALBERT-large", preset("large-v2"), "BERT-large", bert, 1.7),
        Claim("ALBERT-xxlarge", preset("xxlarge-v2"), "BERT-large", bert, 0.3),
    )


class Timed(BaseModel):
    """Speeds relative to the network beside it: the median over rounds, the lowest, the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Timed:
        """Summarise the ratios of all rounds."""
        return cls(median=median(ratios), low=min(ratios), high=max(ratios))


class ClaimResult(BaseModel):
    """One claim as measured here; times are CPU seconds of one process.

    `gradient_bytes` counts the float32 gradients of a data-parallel step. `training_bytes` counts
    weights, gradients and two moments. `network_seconds` gives the time of a ring all-reduce, which
    sends the gradients about twice, at each network speed in Gbit/s.
    """

    name: str
    beside: str
    paper_speed: float
    training_speed: Timed
    inference_speed: Timed
    flops_speed: float
    parameters: tuple[int, int]
    gradient_bytes: tuple[int, int]
    training_bytes: tuple[int, int]
    training_seconds: tuple[float, float]
    network_seconds: dict[int, tuple[float, float]]

    def speed_at(self, gigabits: int) -> float:
        """Return the ratio of speeds of a step followed by its all-reduce."""
        (own, other), (sent, other_sent) = self.training_seconds, self.network_seconds[gigabits]
        return (other + other_sent) / (own + sent)


class Costs(BaseModel):
    """What `litebert study cost` measured."""

    tokens: int
    seq_length: int
    rounds: int
    precision: str
    threads: int
    claims: list[ClaimResult]


def measure_costs(
    claims: Sequence[Claim] | None = None,
    *,
    tokens: int = 64,
    seq_length: int = 64,
    rounds: int = 3,
    precision: Precision = "fp32",
    say: Callable[[str], None] = lambda _: None,
) -> Costs:
    """Time a training step and a forward pass of each pair, one after the other in every round.

    A step is the forward and the backward pass and an update (a plain one: it reads and writes
    every weight once); the ratio of each round is taken, so that other work on the machine cancels.
    """
    results = []
    for claim in claims if claims is not None else paper_claims():
        say(f"{claim.name} beside {claim.beside}")
        results.append(_measured(claim, tokens, seq_length, rounds, precision))
    return Costs(
        tokens=tokens,
        seq_length=seq_length,
        rounds=rounds,
        precision=precision,
        threads=torch.get_num_threads(),
        claims=results,
    )


def _measured(claim: Claim, tokens: int, seq_length: int, rounds: int, precision: Precision) -> ClaimResult:
    pair = (claim.config, claim.beside_config)
    networks = [_network(config, precision) for config in pair]
    batch = Batch.from_lists([[5] * seq_length] * max(1, tokens // seq_length))
    for network in networks:  # the first call of a kernel prepares it
        _timed_forward(network, batch)
    steps = [[_timed_step(n, batch) for n in networks] for _ in range(rounds)]
    for network in networks:
        pack(network.albert.eval())
    passes = [[_timed_forward(n, batch) for n in networks] for _ in range(rounds)]
    counted = [sizes_of(config) for config in pair]
    flops = [forward_flops(config, seq_length=seq_length) for config in pair]
    gradients = [size.bytes_fp32 for size in counted]
    return ClaimResult(
        name=claim.name,
        beside=claim.beside,
        paper_speed=claim.paper,
        training_speed=Timed.of([other / own for own, other in steps]),
        inference_speed=Timed.of([other / own for own, other in passes]),
        flops_speed=flops[1] / flops[0],
        parameters=(counted[0].total, counted[1].total),
        gradient_bytes=(gradients[0], gradients[1]),
        training_bytes=(4 * gradients[0], 4 * gradients[1]),
        training_seconds=(median(own for own, _ in steps), median(other for _, other in steps)),
        network_seconds={
            speed: (2 * 8 * gradients[0] / (speed * 1e9), 2 * 8 * gradients[1] / (speed * 1e9)) for speed in GIGABITS
        },
    )


def _network(config: AlbertConfig, precision: Precision) -> AlbertForPretraining:
    draws = torch.Generator().manual_seed(SEED)
    network = AlbertForPretraining(config, dtype=DTYPES[precision], generator=draws)
    accelerate(network)
    return network.train()


def _timed_step(network: AlbertForPretraining, batch: Batch) -> float:
    masked = torch.arange(0, len(batch.ids), round(1 / MASKED_SHARE))
    begun = time.process_time()
    output = network(batch, masked)
    loss = output.masked_lm.float().logsumexp(-1).mean() + output.sentence_order.float().mean()
    loss.backward()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=1e-6)
                parameter.grad = None
    return time.process_time() - begun


@torch.no_grad()
def _timed_forward(network: AlbertForPretraining, batch: Batch) -> float:
    begun = time.process_time()
    network.albert(batch)
    return time.process_time() - begun
