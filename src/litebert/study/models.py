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
from litebert.errors import LitebertError, say
from litebert.fast import accelerate, pack
from litebert.fast.attention import Layout
from litebert.fast.steps import DTYPES
from litebert.inference.model import Model
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.study import MASKED_SHARE, findings, forward_flops, sizes_of

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
) -> findings.Layers:
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
) -> findings.Layers:
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
    changes = list[findings.StepChange]()
    fates = list[findings.Fate]()
    recent = [end[counted]]
    for number in range(1, max(depths) + 1):
        place = min(number, trained) - 1  # beyond the plan, the last step again
        state = steps[place](state, layout)
        end = state[: len(batch.ids)].float()
        before = recent[-1]
        after = end[counted]
        distance = (after - before).norm(dim=-1)  # (tokens,), like all four
        angle = (
            F.cosine_similarity(before, after, dim=-1).clamp(-1, 1).arccos().rad2deg()
        )
        each = {
            "l2": distance,
            "angle": angle,
            "norm": after.norm(dim=-1),
            "residual": distance / before.norm(dim=-1),
        }
        means = {name: float(values.mean()) for name, values in each.items()}
        changes.append(
            findings.StepChange(
                step=number, block=1 + blocks.index(albert.plan[place]), **means
            )
        )
        recent = [*recent[-LEAST_DEPTH:], after]
        if number in depths and number > trained:
            fates.append(fate_of([change.residual for change in changes], recent))
        at_depth = end if number == trained else at_depth
    return findings.Layers(
        source=source,
        num_steps=trained,
        num_tokens=int(counted.sum()),
        steps=changes[:trained],
        beyond=changes[trained:],
        fates=fates,
        eigenvalue_at_depth=dominant_eigenvalue(albert, batch, at_depth),
        eigenvalue_at_end=dominant_eigenvalue(albert, batch, end),
    )


def fate_of(residuals: Sequence[float], recent: Sequence[Tensor]) -> findings.Fate:
    """Classify the last iterates: converged, periodic, slowing down, or none of
    these.
    """

    def change_over(lag: int) -> float:
        """Return how far the last states are from those `lag` steps before, relative to
        their size.
        """
        pairs = zip(recent[-WINDOW - lag : -lag], recent[-WINDOW:], strict=True)
        return fmean(
            float(((b - a).norm(dim=-1) / a.norm(dim=-1)).mean()) for a, b in pairs
        )

    depth = len(residuals)
    residual = change_over(1)
    by_lag = {lag: change_over(lag) for lag in range(2, MOST_PERIOD + 1)}
    returning = [
        lag for lag, distance in by_lag.items() if distance < RETURN * residual
    ]
    period = returning[0] if returning else min(by_lag, key=by_lag.__getitem__)
    half_way = fmean(residuals[max(0, depth // 2 - WINDOW) : depth // 2])
    verdict: findings.Verdict = (
        "closes in" if residual < CLOSING * half_way else "wanders"
    )
    if residual < STILL:
        verdict = "converges"
    elif returning:
        verdict = "oscillates"
    return findings.Fate(
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
) -> findings.Costs:
    """Time a training step and a forward pass of each network and of the one `beside`
    it; take the ratio per round.

    A claim is a network and its relative speed according to the paper.
    """
    batch = Batch.from_lists([[5] * seq_length] * max(1, tokens // seq_length))
    results = list[findings.ClaimResult]()
    for name, (config, paper) in claims.items():
        say(f"{name} against {beside[0]}")
        pair = (config, beside[1])
        networks = list[AlbertForPretraining]()
        for shape in pair:
            draws = torch.Generator().manual_seed(SEED)
            networks.append(
                AlbertForPretraining(
                    shape, dtype=DTYPES[precision], generator=draws
                ).train()
            )
            accelerate(networks[-1].albert)
            # warm-up: the first call prepares the kernels
            forward_seconds(networks[-1], batch)
        steps = [
            [step_seconds(each, batch) for each in networks] for _ in range(rounds)
        ]
        for each in networks:
            pack(each.albert.eval())
        passes = [
            [forward_seconds(each, batch) for each in networks] for _ in range(rounds)
        ]
        flops = [forward_flops(shape, seq_length=seq_length) for shape in pair]
        results.append(
            findings.ClaimResult(
                name=name,
                beside=beside[0],
                paper_speed=paper,
                training_speeds=[other / one for one, other in steps],
                inference_speeds=[other / one for one, other in passes],
                flops_speed=flops[1] / flops[0],
                parameters=(sizes_of(pair[0]).total, sizes_of(pair[1]).total),
                training_seconds=(
                    median(one for one, _ in steps),
                    median(other for _, other in steps),
                ),
            )
        )
    given = {"tokens": tokens, "seq_length": seq_length, "rounds": rounds}
    return findings.Costs(
        **given, precision=precision, threads=torch.get_num_threads(), claims=results
    )


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
