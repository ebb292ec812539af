"""Measurements of models: each step and beyond (Figure 1), and the paper's claims about
cost.

Times are CPU seconds of this process. Networks that are compared are timed one after
the other in every round, so that the influence of other work on the machine cancels
out.
"""

import math
import time
from collections.abc import Mapping, Sequence
from statistics import fmean, median

import torch
from torch import Tensor
from torch.autograd.functional import jvp
from torch.nn import functional as F

from litebert.config import AlbertConfig, Precision
from litebert.device import DTYPES
from litebert.errors import LitebertError, say
from litebert.fast import accelerate, pack
from litebert.fast.attention import Layout
from litebert.flops import MASKED_SHARE, forward_flops
from litebert.inference.model import Model
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.study import sizes_of
from litebert.study.costs import ClaimResult, Costs
from litebert.study.layers import Fate, Layers, StepChange, Verdict

SEED = 12_345

# ---- Figure 1: what each step changes, and what happens beyond the trained depth -----
#
# The paper compares the input and the output of each layer and finds that they "are
# oscillating rather than converging" (3.1). It gives neither its texts nor a criterion;
# these are our criteria.

# a state that moves by less than this share of its length in a step has converged
STILL = 0.01
# states oscillate if, after some period, they are back to within this share of a step
RETURN = 0.5
# iterates close in on a point if the steps have shrunk by this factor since half the
# depth
CLOSING = 0.5
MOST_PERIOD = 8
WINDOW = 8
# at a smaller depth, there are too few states to find a period
LEAST_DEPTH = MOST_PERIOD + WINDOW


def measure_layers(
    model: Model, texts: Sequence[str], *, depths: Sequence[int] = (24, 48, 96)
) -> Layers:
    """Measure each step of a model over the pieces of texts, without [CLS] and [SEP];
    classify it at `depths`.

    Beyond the trained depth, the block of the last step is applied again and again.
    With one block, this continues the plan; with several (groups, or no sharing), only
    the last can be iterated, because an equilibrium is the fixed point of one map.
    """
    encoded = [ids for ids in model.tokenizer.encode_ids(texts) if ids]
    if not encoded:
        what = "there are no texts to measure the steps on, or all of them are empty"
        raise LitebertError("LB-749", what, next="litebert study layers --help")
    first = model.tokenizer.cls_id
    last = model.tokenizer.sep_id
    room = model.network.config.max_position_embeddings - 2
    batch = Batch.from_lists([[first, *ids[:room], last] for ids in encoded])
    counted = ~torch.isin(batch.ids, torch.tensor([first, last]))
    return layers_of(
        model.network.albert, batch, counted, source=model.source, depths=depths
    )


@torch.no_grad()
def layers_of(
    albert: Albert, batch: Batch, counted: Tensor, *, source: str, depths: Sequence[int]
) -> Layers:
    """Measure an encoder on a batch; `counted` (tokens,) is true for tokens that enter
    the means.
    """
    trained = len(albert.plan)
    blocks = list(dict.fromkeys(albert.plan))
    if not depths or max(depths) <= trained or min(depths) < LEAST_DEPTH:
        what = "these depths are not beyond the trained one"
        wanted = f"from {LEAST_DEPTH} on, one above {trained}"
        raise LitebertError(
            "LB-761", what, expected=wanted, next="litebert study layers --help"
        )
    layout = Layout(batch)
    steps = accelerate(albert).steps(albert)
    state = next(albert.states(batch))
    at_depth = end = state.float()  # (tokens, hidden); the engine may pad its rows
    changes = list[StepChange]()
    fates = list[Fate]()
    recent = [end[counted]]
    for number in range(1, max(depths) + 1):
        place = min(number, trained) - 1  # beyond the plan, the last step again
        state = steps[place](state, layout)
        end = state[: len(batch.ids)].float()
        before = recent[-1]
        after = end[counted]
        distance = (after - before).norm(dim=-1)  # (tokens,), like the angle
        angle = (
            F.cosine_similarity(before, after, dim=-1).clamp(-1, 1).arccos().rad2deg()
        )
        change = StepChange(
            step=number,
            block=1 + blocks.index(albert.plan[place]),
            l2=float(distance.mean()),
            angle=float(angle.mean()),
            norm=float(after.norm(dim=-1).mean()),
            residual=float((distance / before.norm(dim=-1)).mean()),
        )
        changes.append(change)
        recent = [*recent[-LEAST_DEPTH:], after]
        if number in depths and number > trained:
            fates.append(fate_of([change.residual for change in changes], recent))
        if number == trained:
            at_depth = end
    return Layers(
        source=source,
        num_steps=trained,
        num_tokens=int(counted.sum()),
        steps=changes[:trained],
        beyond=changes[trained:],
        fates=fates,
        eigenvalue_at_depth=dominant_eigenvalue(albert, batch, at_depth),
        eigenvalue_at_end=dominant_eigenvalue(albert, batch, end),
    )


def fate_of(residuals: Sequence[float], recent: Sequence[Tensor]) -> Fate:
    """Classify the last iterates: converged, periodic, slowing down, or none of
    these.
    """

    def change_over(lag: int) -> float:
        """Return how far the last states are from those `lag` steps before, relative to
        their size.
        """
        shares = list[float]()
        earlier = recent[-WINDOW - lag : -lag]
        for before, after in zip(earlier, recent[-WINDOW:], strict=True):
            moved = (after - before).norm(dim=-1) / before.norm(dim=-1)  # (tokens,)
            shares.append(float(moved.mean()))
        return fmean(shares)

    depth = len(residuals)
    residual = change_over(1)
    by_lag = {lag: change_over(lag) for lag in range(2, MOST_PERIOD + 1)}
    returning = [
        lag for lag, distance in by_lag.items() if distance < RETURN * residual
    ]
    period = returning[0] if returning else min(by_lag, key=by_lag.__getitem__)
    half_way = fmean(residuals[max(0, depth // 2 - WINDOW) : depth // 2])
    verdict: Verdict = "wanders"
    if residual < STILL:
        verdict = "converges"
    elif returning:
        verdict = "oscillates"
    elif residual < CLOSING * half_way:
        verdict = "closes in"
    return Fate(
        depth=depth,
        verdict=verdict,
        residual=residual,
        period=period,
        return_residual=by_lag[period],
    )


@torch.enable_grad()
def dominant_eigenvalue(
    albert: Albert, batch: Batch, state: Tensor, *, power_steps: int = 40
) -> float:
    """Return its modulus by iterating v -> J v / |J v| at a state of the first
    sequence, all of its tokens together.

    It is the geometric mean of the growth |J v| / |v| over the second half of the
    iterations, because a complex pair makes the growth oscillate. Plain blocks are
    used: a product with the Jacobian differentiates twice, which fused blocks do not
    support.
    """
    length = batch.lengths[0]
    last = albert.plan[-1]
    alone = Batch.from_lists(
        [batch.ids[:length].tolist()], [batch.segments[:length].tolist()]
    )
    attend = albert.attention[last.attention]
    transform = albert.feed_forward[last.feed_forward]
    point = state[:length].detach().float()  # (tokens, hidden)

    def step(x: Tensor) -> Tensor:
        after: Tensor = transform(attend(x, alone))
        return after

    direction = torch.randn(point.shape, generator=torch.Generator().manual_seed(SEED))
    direction = direction / direction.norm()
    growths = []
    for _ in range(power_steps):
        image: Tensor = jvp(step, point, direction)[1]  # type: ignore[no-untyped-call]
        growth = image.norm()
        growths.append(math.log(max(float(growth), 1e-30)))
        direction = image / growth
    return math.exp(fmean(growths[len(growths) // 2 :]))


# ---- the paper's claims about speed and cost: training step, inference, memory, gradients


def measure_costs(
    claims: Mapping[str, tuple[AlbertConfig, float]],
    beside: tuple[str, AlbertConfig],
    *,
    tokens: int,
    seq_length: int,
    rounds: int,
    precision: Precision = "fp32",
) -> Costs:
    """Time a training step and a forward pass of each network and of the one `beside`
    it; take the ratio per round.

    A claim is a network and its relative speed according to the paper.
    """
    batch = Batch.from_lists([[5] * seq_length] * max(1, tokens // seq_length))
    name_beside, config_beside = beside
    results = list[ClaimResult]()
    for name, (config, paper) in claims.items():
        say(f"{name} against {name_beside}")
        network = _network(config, precision, batch)
        other = _network(config_beside, precision, batch)
        steps = list[tuple[float, float]]()
        for _ in range(rounds):
            steps.append((step_seconds(network, batch), step_seconds(other, batch)))
        pack(network.albert.eval())
        pack(other.albert.eval())
        passes = list[tuple[float, float]]()
        for _ in range(rounds):
            passes.append(
                (forward_seconds(network, batch), forward_seconds(other, batch))
            )
        flops = forward_flops(config, seq_length=seq_length)
        flops_beside = forward_flops(config_beside, seq_length=seq_length)
        result = ClaimResult(
            name=name,
            beside=name_beside,
            paper_speed=paper,
            training_speeds=[theirs / own for own, theirs in steps],
            inference_speeds=[theirs / own for own, theirs in passes],
            flops_speed=flops_beside / flops,
            parameters=(sizes_of(config).total, sizes_of(config_beside).total),
            training_seconds=(
                median(own for own, _ in steps),
                median(theirs for _, theirs in steps),
            ),
        )
        results.append(result)
    return Costs(
        tokens=tokens,
        seq_length=seq_length,
        rounds=rounds,
        precision=precision,
        threads=torch.get_num_threads(),
        claims=results,
    )


def _network(
    config: AlbertConfig, precision: Precision, batch: Batch
) -> AlbertForPretraining:
    """Return a network with random weights, ready for training."""
    draws = torch.Generator().manual_seed(SEED)
    network = AlbertForPretraining(config, dtype=DTYPES[precision], generator=draws)
    accelerate(network.train().albert)
    forward_seconds(network, batch)  # the first call prepares the kernels
    return network


def step_seconds(network: AlbertForPretraining, batch: Batch) -> float:
    """Return the CPU seconds of a forward pass, a backward pass and a plain update,
    which touches every weight once.
    """
    masked = torch.arange(0, len(batch.ids), round(1 / MASKED_SHARE))
    begun = time.process_time()
    output = network(batch, masked)
    loss = (
        output.masked_lm.float().logsumexp(-1).mean()
        + output.sentence_order.float().mean()
    )
    loss.backward()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=1e-6)
                parameter.grad = None
    return time.process_time() - begun


@torch.no_grad()
def forward_seconds(network: AlbertForPretraining, batch: Batch) -> float:
    begun = time.process_time()
    network.albert(batch)
    return time.process_time() - begun
