"""Studies of models: each step and beyond (Figure 1), the paper's claims of cost, what is known without fine-tuning.

Times are CPU seconds of this process; what is compared is timed one after the other in every round, so that other work
on the machine cancels.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, mean, median

import numpy as np
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
from litebert.metrics import regression_measures
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.reading.tables import Row
from litebert.study import MASKED_SHARE, findings, forward_flops, sizes_of
from litebert.tasks.own.table import number_of, open_table

SEED = 12_345

# ---- Figure 1: what each step changes, and where the network goes beyond its depth ----------------------------------
#
# The paper compares the input and the output of each layer and finds that they "are oscillating rather than converging"
# (3.1). It gives neither its texts nor a criterion; ours are these.

STILL = 0.01  # a state that moves by less than this share of its length in a step has converged
RETURN = 0.5  # states oscillate if after some period they are within this share of a step of where they were
CLOSING = 0.5  # iterates close in on a point if the steps shrank by this factor since half the depth
MOST_PERIOD, WINDOW = 8, 8
LEAST_DEPTH = MOST_PERIOD + WINDOW  # at a smaller depth there are too few states to find a period


def measure_layers(model: Model, texts: Sequence[str], *, depths: Sequence[int] = (24, 48, 96)) -> findings.Layers:
    """Measure each step of a model over the pieces of texts, [CLS] and [SEP] not counted; judge at `depths`.

    Beyond the trained depth the block of the last step is applied again and again. With one block that continues the
    plan; with several (groups, or no sharing) only the last can be iterated, because an equilibrium is the fixed point
    of one map.
    """
    encoded = [ids for ids in model.tokenizer.encode_ids(texts) if ids]
    if not encoded:
        what = "there are no texts to measure the steps on, or all of them are empty"
        raise LitebertError("LB-749", what, next="litebert study layers --help")
    first, last, room = model.tokenizer.cls_id, model.tokenizer.sep_id, model.network.config.max_position_embeddings - 2
    batch = Batch.from_lists([[first, *ids[:room], last] for ids in encoded])
    counted = ~torch.isin(batch.ids, torch.tensor([first, last]))
    return layers_of(model.network.albert, batch, counted, source=model.source, depths=depths)


@torch.no_grad()
def layers_of(albert: Albert, batch: Batch, counted: Tensor, *, source: str, depths: Sequence[int]) -> findings.Layers:
    """Measure an encoder on a batch; `counted` (tokens,) is true for the tokens that enter the means."""
    trained, blocks = len(albert.plan), list(dict.fromkeys(albert.plan))
    if not depths or max(depths) <= trained or min(depths) < LEAST_DEPTH:
        what, wanted = "these depths do not lie beyond the trained one", f"from {LEAST_DEPTH} on, one above {trained}"
        raise LitebertError("LB-761", what, expected=wanted, next="litebert study layers --help")
    layout, steps, state = Layout(batch), accelerate(albert).steps(albert), next(albert.states(batch))
    at_depth = end = state.float()  # (tokens, hidden); the engine may pad its rows
    changes, fates, recent = list[findings.StepChange](), list[findings.Fate](), [end[counted]]
    for number in range(1, max(depths) + 1):
        place = min(number, trained) - 1  # the last step again beyond the plan
        state = steps[place](state, layout)
        end = state[: len(batch.ids)].float()
        before, after = recent[-1], end[counted]
        distance = (after - before).norm(dim=-1)  # (tokens,), as all four
        angle = F.cosine_similarity(before, after, dim=-1).clamp(-1, 1).arccos().rad2deg()
        each = {"l2": distance, "angle": angle, "norm": after.norm(dim=-1), "residual": distance / before.norm(dim=-1)}
        means = {name: float(values.mean()) for name, values in each.items()}
        changes.append(findings.StepChange(step=number, block=1 + blocks.index(albert.plan[place]), **means))
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
    """Classify the last iterates: converged, periodic, slowing down, or none of these."""

    def moved(lag: int) -> float:
        """How far the last states are from those `lag` steps before, relative to their size."""
        pairs = zip(recent[-WINDOW - lag : -lag], recent[-WINDOW:], strict=True)
        return fmean(float(((b - a).norm(dim=-1) / a.norm(dim=-1)).mean()) for a, b in pairs)

    depth, residual = len(residuals), moved(1)
    by_lag = {lag: moved(lag) for lag in range(2, MOST_PERIOD + 1)}
    returning = [lag for lag, distance in by_lag.items() if distance < RETURN * residual]
    period = returning[0] if returning else min(by_lag, key=by_lag.__getitem__)
    half_way = fmean(residuals[max(0, depth // 2 - WINDOW) : depth // 2])
    verdict: findings.Verdict = "closes in" if residual < CLOSING * half_way else "wanders"
    if residual < STILL:
        verdict = "converges"
    elif returning:
        verdict = "oscillates"
    return findings.Fate(depth=depth, verdict=verdict, residual=residual, period=period, return_residual=by_lag[period])


@torch.enable_grad()
def dominant_eigenvalue(albert: Albert, batch: Batch, state: Tensor, *, power_steps: int = 40) -> float:
    """Return its modulus: iterate v -> J v / |J v| at a state of the first sequence, all of its tokens together.

    It is the geometric mean of the growth |J v| / |v| over the second half of the iterations, because a complex pair
    makes the growth oscillate. The plain blocks are used: a product with the Jacobian differentiates
    twice, which the fused blocks cannot.
    """
    length, last = batch.lengths[0], albert.plan[-1]
    alone = Batch.from_lists([batch.ids[:length].tolist()], [batch.segments[:length].tolist()])
    attend, transform = albert.attention[last.attention], albert.feed_forward[last.feed_forward]
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


# ---- the paper's claims of speed and cost: training step, inference, memory, gradients ------------------------------


def measure_costs(
    claims: Mapping[str, tuple[AlbertConfig, float]],
    beside: tuple[str, AlbertConfig],
    *,
    tokens: int,
    seq_length: int,
    rounds: int,
    precision: Precision = "fp32",
) -> findings.Costs:
    """Time a training step and a forward pass of each network and of one beside it; take the ratio of each round.

    A claim is a network and how many times as fast it is according to the paper.
    """
    batch, results = Batch.from_lists([[5] * seq_length] * max(1, tokens // seq_length)), list[findings.ClaimResult]()
    for name, (config, paper) in claims.items():
        say(f"{name} beside {beside[0]}")
        pair, networks = (config, beside[1]), list[AlbertForPretraining]()
        for shape in pair:
            draws = torch.Generator().manual_seed(SEED)
            networks.append(AlbertForPretraining(shape, dtype=DTYPES[precision], generator=draws).train())
            accelerate(networks[-1].albert)
            forward_seconds(networks[-1], batch)  # the first call of a kernel prepares it
        steps = [[step_seconds(each, batch) for each in networks] for _ in range(rounds)]
        for each in networks:
            pack(each.albert.eval())
        passes = [[forward_seconds(each, batch) for each in networks] for _ in range(rounds)]
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
                training_seconds=(median(one for one, _ in steps), median(other for _, other in steps)),
            )
        )
    given = {"tokens": tokens, "seq_length": seq_length, "rounds": rounds}
    return findings.Costs(**given, precision=precision, threads=torch.get_num_threads(), claims=results)


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
    begun = time.process_time()
    network.albert(batch)
    return time.process_time() - begun


# ---- what a pretrained model knows without fine-tuning: BLiMP, sentence similarity, retrieval -----------------------

PAIR_COLUMNS = (("sentence1", "sentence2", "score"), ("sentence_A", "sentence_B", "relatedness_score"))
MOST_BLOCKED = 4_096  # questions whose cosines with all paragraphs are in memory at once


def blimp(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the share of minimal pairs whose good sentence is likelier, overall and by field.

    Sentences are compared by pseudo-log-likelihood (Salazar et al., 2020); BLiMP is that of Warstadt et al. (2020). All
    paradigms (`UID`) have the same weight; `limit` takes the first pairs of each.
    """
    paradigms: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in _rows(data, "blimp", [("sentence_good", "sentence_bad", "UID", "field")]):
        # BLiMP has two spellings of one field
        paradigms[str(row["field"]).replace("/", "_"), str(row["UID"])].append(row)
    by_field: dict[str, list[float]] = defaultdict(list)
    for (field, _), rows in sorted(paradigms.items()):
        sentences = [str(row[key]) for row in rows[:limit] for key in ("sentence_good", "sentence_bad")]
        good, bad = np.array([score.log_likelihood for score in model.score(sentences)]).reshape(-1, 2).T  # (pairs,)
        by_field[f"blimp_{field}"].append(float((good > bad).mean()))
    overall = mean(share for shares in by_field.values() for share in shares)
    return {"blimp": overall, **{name: mean(shares) for name, shares in by_field.items()}}


def sts(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return the correlations of cosines with human scores of sentence pairs (STS-B, SICK)."""
    rows = _rows(data, "sts", PAIR_COLUMNS)[:limit]
    *texts, score = next(names for names in PAIR_COLUMNS if set(names) <= set(rows[0]))
    scores = np.array([number_of(row[score]) for row in rows], dtype=np.float64)
    if np.isnan(scores).any():
        place = int(np.flatnonzero(np.isnan(scores))[0])
        what, received = f"{data}, row {place + 1}: the {score} is not a number", str(rows[place][score])
        raise LitebertError("LB-992", what, received=received, next=f"correct or remove this row: {data}")
    first, second = (model.embed([str(row[name]) for row in rows], normalize=True) for name in texts)
    measures = regression_measures(scores, (first * second).sum(1))
    return {"sts_spearman": measures["spearman"], "sts_pearson": measures["pearson"]}


def retrieval(model: Model, data: Path, *, limit: int | None = None) -> dict[str, float]:
    """Return how well questions find their paragraph among all paragraphs of a file, by cosine.

    `data` is in SQuAD's layout, or rows with `question` and `context`. The mean reciprocal rank
    counts ranks beyond 10 as 0; recall at k is the share of questions found among the first k.
    """
    rows = _rows(data, "retrieval", [("question", "context")])[:limit]
    contexts = list(dict.fromkeys(str(row["context"]) for row in rows))
    number = {context: index for index, context in enumerate(contexts)}
    wanted = np.array([number[str(row["context"])] for row in rows])
    vectors = model.embed(contexts, normalize=True)
    questions = model.embed([str(row["question"]) for row in rows], normalize=True)
    ranks = np.zeros(len(rows), dtype=np.int64)  # how many paragraphs are nearer than the wanted one
    for start in range(0, len(rows), MOST_BLOCKED):
        block = slice(start, start + MOST_BLOCKED)
        cosines = questions[block] @ vectors.T
        ranks[block] = (cosines > np.take_along_axis(cosines, wanted[block, None], axis=1)).sum(1)
    return {
        "retrieval_mrr": float(np.where(ranks < 10, 1 / (1 + ranks), 0.0).mean()),
        **{f"retrieval_recall_at_{k}": float((ranks < k).mean()) for k in (1, 5, 10)},
    }


def _rows(data: Path, measure: str, columns: Sequence[tuple[str, ...]]) -> list[Row]:
    """Return the rows of a file, all of which have the columns of one of the tuples."""
    rows = [row for _, row in open_table(data, has_header=True).rows()]
    needed: set[str] = next((set(names) for names in columns if rows and set(names) <= set(rows[0])), {""})
    if (lacking := next((row for row in rows if not needed <= set(row)), None)) is not None or not rows:
        what, advice = f"{data} has no rows for {measure}", "litebert evaluate --help"
        received, expected = ", ".join(lacking or ()) or "no rows", " or ".join(map(", ".join, columns))
        raise LitebertError("LB-992", what, received=received, expected=expected, next=advice)
    return rows


MEASURES: dict[str, Callable[..., dict[str, float]]] = {"blimp": blimp, "sts": sts, "retrieval": retrieval}
"""What `litebert evaluate --on` measures; each takes a model, a file, and a limit on its rows."""
