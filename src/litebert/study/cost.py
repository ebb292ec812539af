"""The paper's claims of speed and cost, measured: training step, inference, memory, gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch

from litebert.config import AlbertConfig, Precision, preset
from litebert.fast import accelerate, pack
from litebert.fast.steps import DTYPES
from litebert.nn import AlbertForPretraining, Batch
from litebert.study.findings import GIGABITS, ClaimResult, Costs, Timed
from litebert.study.sizes import MASKED_SHARE, forward_flops, sizes_of

SEED = 12_345


class Claim(NamedTuple):
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

    The ratio of each round is taken, so that other work on the machine cancels.
    """
    batch = Batch.from_lists([[5] * seq_length] * max(1, tokens // seq_length))
    results = []
    for claim in paper_claims() if claims is None else claims:
        say(f"{claim.name} beside {claim.beside}")
        pair = (claim.config, claim.beside_config)
        networks = []
        for config in pair:
            draws = torch.Generator().manual_seed(SEED)
            networks.append(AlbertForPretraining(config, dtype=DTYPES[precision], generator=draws).train())
            accelerate(networks[-1])
            forward_seconds(networks[-1], batch)  # the first call of a kernel prepares it
        steps = [[step_seconds(each, batch) for each in networks] for _ in range(rounds)]
        for each in networks:
            pack(each.albert.eval())
        passes = [[forward_seconds(each, batch) for each in networks] for _ in range(rounds)]
        own, beside = map(sizes_of, pair)
        flops, beside_flops = (forward_flops(config, seq_length=seq_length) for config in pair)
        gradients = (own.bytes_fp32, beside.bytes_fp32)
        # A ring all-reduce sends the gradients about twice; a byte has 8 bits.
        sent = {gigabits: [2 * 8 * size / (gigabits * 1e9) for size in gradients] for gigabits in GIGABITS}
        results.append(
            ClaimResult(
                name=claim.name,
                beside=claim.beside,
                paper_speed=claim.paper,
                training_speed=Timed.of([other / one for one, other in steps]),
                inference_speed=Timed.of([other / one for one, other in passes]),
                flops_speed=beside_flops / flops,
                parameters=(own.total, beside.total),
                gradient_bytes=gradients,
                training_bytes=(4 * gradients[0], 4 * gradients[1]),
                training_seconds=(median(one for one, _ in steps), median(other for _, other in steps)),
                network_seconds={gigabits: (seconds[0], seconds[1]) for gigabits, seconds in sent.items()},
            )
        )
    return Costs(
        tokens=tokens,
        seq_length=seq_length,
        rounds=rounds,
        precision=precision,
        threads=torch.get_num_threads(),
        claims=results,
    )


def step_seconds(network: AlbertForPretraining, batch: Batch) -> float:
    """Return the CPU seconds of a forward and a backward pass and a plain update, which touches every weight once."""
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
def forward_seconds(network: AlbertForPretraining, batch: Batch) -> float:
    """Return the CPU seconds of the encoder."""
    begun = time.process_time()
    network.albert(batch)
    return time.process_time() - begun
