"""Adaptive depth: a classifier after every step, so that easy texts need fewer steps.

Patience-based early exit (PABEE, arXiv 2006.04152), at any batch size: the tokens of a sequence that has stopped leave
the token list.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError, RequestError
from litebert.fast.attention import Layout
from litebert.fast.steps import engine_of
from litebert.nn.batch import Batch, sequence_of
from litebert.nn.heads import AlbertForTask, Network
from litebert.nn.model import initialise

SAME_SCORE = 0.1  # scores closer than this count as equal (section 3.2, tau; the authors' example for STS-B)


class AlbertWithExits(AlbertForTask):
    """The encoder with a classifier after every step."""

    def __init__(
        self,
        config: AlbertConfig,
        head: HeadConfig,
        *,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(config, head, dtype=dtype, generator=generator)
        self.exits = nn.ModuleList(head.record.make(config, head) for _ in range(config.num_steps - 1))
        initialise(self.exits, std=config.initializer_range, generator=generator)

    def forward(self, batch: Batch) -> Float[Tensor, "sequences outputs"]:
        """Return the logits of the head at the depth to which the encoder is applied."""
        pooled = self.albert.pool(self.albert(batch, batch.first_tokens))
        logits: Tensor = self.heads[self.albert.depth - 1](pooled)
        return logits

    @property
    def heads(self) -> list[nn.Module]:
        """The head after each step."""
        return [*self.exits, self.head]


def limit_depth(network: Network, depth: int | None) -> None:
    """Apply only the first `depth` steps from now on, or all; with exits, the head of that step answers."""
    deepest = len(network.albert.plan)
    depth = deepest if depth is None else depth
    if not isinstance(depth, int) or not 1 <= depth <= deepest:
        what, expected = f"this model cannot be applied to depth {depth}", f"1 to {deepest} steps"
        raise LitebertError("LB-452", what, expected=expected, next=f"choose a depth up to {deepest}")
    network.albert.depth = depth


def require_exits(network: AlbertForTask, patience: int) -> AlbertWithExits:
    """Return the network if it can stop early."""
    if patience < 1:
        what = f"patience is how many classifiers must agree with the one before: 1 or more, not {patience}"
        raise RequestError("LB-453", what, next="omit patience to take every step")
    if not isinstance(network, AlbertWithExits):
        what = "this model cannot stop early: it has no head after every step"
        raise RequestError("LB-454", what, next="litebert finetune TASK --model MODEL train.exits=true")
    return network


def logits_by_step(network: AlbertForTask, batch: Batch) -> list[Float[Tensor, "sequences outputs"]]:
    """Return the logits after every step that has a head; the last step always has one."""
    if not isinstance(network, AlbertWithExits):
        return [network(batch)]
    first = batch.first_tokens
    _, *inner, last = network.albert.states(batch, first)
    states = [*(hidden[first] for hidden in inner), last]  # of [CLS], after each step
    return [head(network.albert.pool(x)) for head, x in zip(network.heads, states, strict=False)]


def mean_by_depth(losses: Sequence[Float[Tensor, " sequences"]]) -> Float[Tensor, " sequences"]:
    """Return the mean of the losses after each step, weighted by the step's number (section 3.3).

    >>> mean_by_depth([torch.tensor([4.0]), torch.tensor([1.0])])
    tensor([2.])
    """
    summed = torch.stack([step * loss for step, loss in enumerate(losses, start=1)]).sum(0)
    return summed / sum(range(1, len(losses) + 1))


@torch.no_grad()
def patient_logits(network: AlbertForTask, batch: Batch, patience: int) -> Float[Tensor, "sequences outputs"]:
    """Return the logits of each sequence at the step where it stops.

    It stops where classifiers have agreed with the one before `patience` times in a row (section 3.2), or at the last
    step. The result does not depend on the rest of the batch.
    """
    albert, heads = network.albert, require_exits(network, patience).heads
    steps, hidden = engine_of(albert).steps(albert), next(albert.states(batch))
    running = torch.arange(len(batch.lengths), device=hidden.device)  # (sequences,), those that have not stopped
    repeats = torch.full_like(running, -1)  # the first classifier repeats nothing
    answers = torch.zeros(len(running), network.head_config.num_outputs, device=hidden.device)
    for number, (step, head) in enumerate(zip(steps, heads, strict=False), start=1):
        first = batch.first_tokens
        if number < len(steps):
            hidden = step(hidden, Layout(batch))
            pooled = albert.pool(hidden[first])
        else:  # the last step computes only [CLS]
            pooled = albert.pool(step(hidden, Layout(batch, first))[: len(first)])
        logits = head(pooled)  # (running, outputs)
        is_same = is_same_answer(answers[running], logits, network.head_config.problem_type)
        answers[running], repeats[running] = logits, torch.where(is_same, repeats[running] + 1, 0)
        is_running = repeats[running] < patience
        if not is_running.any():
            break
        if not is_running.all():  # drop the tokens of what has stopped
            running, kept = running[is_running], is_running[sequence_of(batch)].nonzero().flatten()
            sizes = batch.offsets.diff()[is_running]
            offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
            flat = (batch.ids[kept], batch.positions[kept], batch.segments[kept])
            batch, hidden = Batch(*flat, offsets, tuple(sizes.tolist())), hidden[kept]
    return answers


def is_same_answer(
    before: Float[Tensor, "sequences outputs"], after: Float[Tensor, "sequences outputs"], problem: str
) -> Bool[Tensor, " sequences"]:
    """Tell for which sequences two classifiers agree: on label, set of labels, or score, the only output."""
    if problem == "multi_label_classification":
        return ((after >= 0) == (before >= 0)).all(1)
    if problem == "regression" or after.shape[1] == 1:
        return ((after - before).abs() < SAME_SCORE).all(1)
    return after.argmax(1) == before.argmax(1)
