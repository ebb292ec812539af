"""What a network is trained for: the interface between a task and the trainer, and
pretraining, the first task.

Pretraining learns masked words and sentence order, weighted equally (run_pretraining.py
L177). A network has one head per objective (`litebert.nn.heads.PRETRAINING_HEADS`).
What a head learns is defined by an `Objective` of the same name; the loss of a step,
the log, the report and the checkpoints follow from `OBJECTIVES`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert import rng
from litebert.config import EarlyConfig, TrainConfig
from litebert.distributed import ALONE, World
from litebert.fast import accelerate, pack, sum_dtype
from litebert.nn import Albert, AlbertForPretraining, Batch, Network, device_of, move
from litebert.objectives import NO_LABEL, PretrainingBatch, Samples, prefetch

# added to the number of masked tokens, as upstream (run_pretraining.py L337)
EPSILON = 1e-5


# Any task: batches by step, micro-batches, a loss, an evaluation, measures


@dataclass(frozen=True)
class MicroBatch:
    """The sequences that a loss is computed from at once; each task adds what else its
    loss needs.
    """

    batch: Batch


Work = TypeVar("Work", bound=MicroBatch)


@dataclass(frozen=True)
class Loss:
    """One micro-batch's share of the step's loss, and sums to report.

    The shares of all micro-batches of a step add up to the loss of the whole batch, so
    gradient accumulation changes only the use of memory. `sums` (`Task.num_sums`,)
    become measures.
    """

    total: Tensor
    sums: Tensor


class Task(ABC, Generic[Work]):
    """What a network is trained for; `num_sums` is the number of entries of
    `Loss.sums`.
    """

    network: Network
    num_sums: int

    @abstractmethod
    def batches(self, start: int, stop: int) -> Iterator[Sequence[Work]]:
        """Yield the micro-batches of the steps start, ... stop - 1, on the network's
        device; any start is allowed.
        """

    @abstractmethod
    def loss(self, work: Work) -> Loss:
        """Return this micro-batch's share of the loss of its step."""

    @abstractmethod
    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Turn sums into measures by name: mean losses, accuracies."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Measure the network on held-out data; leave it in training mode."""


def stack_sums(*values: Tensor) -> Tensor:
    """Return values as `Loss.sums`, in a dtype precise enough to be summed over a
    run.
    """
    exact = sum_dtype(values[0].device)
    return torch.stack([value.detach().to(exact) for value in values])


# What the heads of pretraining learn


@dataclass(frozen=True)
class PretrainingWork(MicroBatch):
    """A micro-batch and the totals of its step, so that shares of the loss add up.

    `masked_positions` (masked,) index the flat tokens, `masked_ids` are their original
    ids; `sentence_labels` (sequences,) are None without a sentence objective.
    """

    masked_positions: Tensor
    masked_ids: Tensor
    sentence_labels: Tensor | None
    step_masked: int
    step_labelled: int


@dataclass(frozen=True)
class Measure:
    """A number that pretraining reports: `name` in metrics.jsonl, `short` in a line of
    the log.

    The report draws it under `title` with `caption`. `chance` is its value without any
    learning, or the name of the measure that has this value.
    """

    name: str
    short: str = ""
    title: str = ""
    caption: str = "Lower is better."
    chance: float | str | None = None

    @property
    def is_share(self) -> bool:
        """Whether it is written as a percentage."""
        return "%" in self.short


@dataclass(frozen=True)
class Objective:
    """What one head learns.

    `loss(logits, work)` returns the micro-batch's share of the step's loss, with three
    sums: the losses, the right answers and all answers. It returns None if a batch has
    no labels for it. `measures` are the mean loss and the accuracy that follow from the
    sums.
    """

    loss: Callable[[Tensor, PretrainingWork], Loss | None]
    measures: tuple[Measure, Measure]


def masked_lm_objective(logits: Tensor, work: PretrainingWork) -> Loss:
    """Return the mean cross-entropy of the masked tokens, from logits (masked,
    vocab).
    """
    loss = masked_loss(logits, work.masked_ids)
    count = logits.new_full((), len(logits), dtype=torch.int64)
    return Loss(
        loss / (work.step_masked + EPSILON),
        stack_sums(loss, _correct(logits, work.masked_ids), count),
    )


def sentence_order_objective(logits: Tensor, work: PretrainingWork) -> Loss | None:
    """Return the mean cross-entropy of the sequences that have a label, from logits
    (sequences, 2).
    """
    labels = work.sentence_labels
    if labels is None:
        return None
    # selecting rows by a mask would make the host wait for a GPU
    loss = F.cross_entropy(logits, labels, reduction="sum", ignore_index=NO_LABEL)
    return Loss(
        loss / max(1, work.step_labelled),
        stack_sums(loss, _correct(logits, labels), (labels != NO_LABEL).sum()),
    )


OBJECTIVES: dict[str, Objective] = {
    "masked_lm": Objective(
        masked_lm_objective,
        (
            Measure("masked_lm_loss", "mlm {:.3f}", "Masked-LM loss"),
            Measure(
                "masked_lm_accuracy",
                "acc {:.1%}",
                "Masked-LM accuracy",
                "Share of the masked tokens that are named exactly.",
                "masked_lm_baseline",
            ),
        ),
    ),
    "sentence_order": Objective(
        sentence_order_objective,
        (
            Measure("sentence_order_loss", "sop {:.3f}"),
            Measure(
                "sentence_order_accuracy",
                "acc {:.1%}",
                "Sentence order accuracy",
                "Share of the sentence pairs that are judged right.",
                0.5,
            ),
        ),
    ),
}
"""What each head of pretraining learns, by the head's name; a step's loss is the sum of
their losses.
"""
MASK_TOKEN = (
    Measure(
        "mask_token_loss",
        "",
        "[MASK] loss",
        "Only of the positions that show [MASK]. Lower is better.",
    ),
    Measure(
        "mask_token_accuracy",
        "[MASK] {:.1%}",
        "[MASK] accuracy",
        "Share of the positions that show [MASK] that are named exactly.",
    ),
)
WITH_TEACHER = (
    Measure(
        "hidden_error",
        "hidden {:.3f}",
        "Hidden-state error",
        "Distance to the teacher's states. Lower is better.",
    ),
    Measure(
        "vector_error",
        "vectors {:.3f}",
        "Text-vector error",
        "Distance to the teacher's vectors. Lower is better.",
    ),
)


def pretraining_measures() -> tuple[Measure, ...]:
    """Return everything that pretraining and distillation measure, in the order of a
    log line.
    """
    masked, *others = (objective.measures for objective in OBJECTIVES.values())
    return (*masked, *MASK_TOKEN, *chain(*others), *WITH_TEACHER)


# The task


@dataclass(eq=False)
class Pretraining(Task[PretrainingWork]):
    """The task of pretraining; without a loader it only evaluates."""

    network: AlbertForPretraining
    held_out: Sequence[PretrainingBatch]
    train: TrainConfig
    open_loader: Callable[[], Samples] | None = None
    early: EarlyConfig = field(default_factory=EarlyConfig)
    mask_id: int | None = None
    world: World = ALONE

    def __post_init__(self) -> None:
        accelerate(self.network.albert)
        self.num_sums = 3 * len(OBJECTIVES)

    def batches(self, start: int, stop: int) -> Iterator[Sequence[PretrainingWork]]:
        """Yield the micro-batches of each step on the network's device; set the
        network's depth.
        """
        assert self.open_loader is not None
        steps = range(start, stop)
        train = self.train
        world = self.world
        early = self.early
        made = prefetch(
            self.open_loader,
            steps,
            rank=world.rank,
            world_size=world.size,
            workers=train.loader_workers,
        )
        for step, batch in zip(steps, made, strict=True):
            # the depth depends only on the step, so a run that was stopped resumes
            # exactly
            is_early = early.depth is not None and step < round(
                early.depth_share * train.steps
            )
            full = self.network.config.num_steps
            self.network.albert.depth = (
                min(early.depth or full, full) if is_early else full
            )
            yield list(
                micro_batches(
                    batch, train.micro_batch_size, device_of(self.network), world
                )
            )

    def loss(
        self, work: PretrainingWork, logits: dict[str, Tensor] | None = None
    ) -> Loss:
        """Return this micro-batch's share of the sum of all objectives' losses;
        `logits` may be given.
        """
        if logits is None:
            logits = self.network(work.batch, work.masked_positions)
        found = [
            objective.loss(logits[name], work) for name, objective in OBJECTIVES.items()
        ]
        losses = [loss for loss in found if loss is not None]
        nothing = torch.zeros_like(losses[0].sums)
        total = sum((loss.total for loss in losses[1:]), losses[0].total)
        return Loss(
            total, torch.cat([loss.sums if loss else nothing for loss in found])
        )

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Return mean losses and accuracies in [0, 1] of the objectives that were
        measured.
        """
        values = dict[str, float]()
        for number, objective in enumerate(OBJECTIVES.values()):
            loss, correct, count = sums[3 * number : 3 * number + 3]
            if count or number == 0:
                of_loss, of_accuracy = objective.measures
                values |= {
                    of_loss.name: loss / (count or 1.0),
                    of_accuracy.name: correct / (count or 1.0),
                }
        return values

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure on the held-out sequences; the baseline always predicts the most
        common token.

        `mask_token_*` count only positions that show [MASK]: elsewhere the answer is
        visible (kept pieces) or hidden behind a random piece.
        """
        device = device_of(self.network)
        self.network.eval()
        pack(self.network.albert)
        exact = sum_dtype(device)
        sums = torch.zeros(self.num_sums, dtype=exact, device=device)
        # of the positions that show [MASK]
        hidden = torch.zeros(3, dtype=exact, device=device)
        for batch in self.world.share(self.held_out):
            for work in micro_batches(batch, self.train.micro_batch_size, device):
                logits = self.network(work.batch, work.masked_positions)
                sums += self.loss(work, logits).sums
                if self.mask_id is not None:
                    # (masked,)
                    is_hidden = work.batch.ids[work.masked_positions] == self.mask_id
                    shown_mask = replace(work, masked_ids=work.masked_ids[is_hidden])
                    hidden += masked_lm_objective(
                        logits["masked_lm"][is_hidden], shown_mask
                    ).sums
        self.network.train()
        self.world.sum_([sums, hidden])
        measured = self.measures(sums.tolist())
        loss, correct, count = hidden.tolist()
        if count:
            measured |= {
                "mask_token_loss": loss / count,
                "mask_token_accuracy": correct / count,
            }
        ids = np.concatenate([batch.masked_ids for batch in self.held_out])
        return measured | {
            "masked_lm_baseline": float(
                np.bincount(ids, minlength=1).max() / max(1, ids.size)
            )
        }


def micro_batches(
    batch: PretrainingBatch,
    size: int | None,
    device: torch.device,
    world: World = ALONE,
) -> Iterator[PretrainingWork]:
    """Cut a process's share of a step into micro-batches of at most `size` sequences,
    on a device.
    """
    num_sequences = len(batch.offsets) - 1
    labels = batch.sentence_labels
    num_labelled = 0 if labels is None else int(np.count_nonzero(labels != NO_LABEL))
    masked, labelled = (
        int(total) for total in world.totals(len(batch.masked_ids), num_labelled)
    )
    size = size or num_sequences
    for first in range(0, num_sequences, size):
        last = min(first + size, num_sequences)
        start = batch.offsets[first]
        stop = batch.offsets[last]
        inside = slice(*np.searchsorted(batch.masked_positions, [start, stop]))

        def on_device(array: Any) -> Tensor:
            return move(torch.from_numpy(array), device)

        yield PretrainingWork(
            batch=Batch(
                ids=on_device(batch.ids[start:stop]),
                positions=on_device(batch.positions[start:stop]),
                segments=on_device(batch.segments[start:stop]),
                offsets=on_device(batch.offsets[first : last + 1] - start),
                lengths=tuple(np.diff(batch.offsets[first : last + 1]).tolist()),
            ),
            masked_positions=on_device(batch.masked_positions[inside] - start),
            masked_ids=on_device(batch.masked_ids[inside]),
            sentence_labels=None if labels is None else on_device(labels[first:last]),
            step_masked=masked,
            step_labelled=labelled,
        )


# Kernels: the loss over a large vocabulary, and the count of right answers

# in float32 at a time: for 16,000 pieces they take 2 MB, which fit a core's cache
LOSS_ROWS = 32


def masked_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy, summed in float32, of logits (masked, vocab) in any
    precision.
    """
    if logits.is_cuda or logits.dtype == torch.float32:
        return F.cross_entropy(logits.float(), labels, reduction="sum")
    loss: Tensor = _LossInPieces.apply(logits, labels)  # type: ignore[no-untyped-call]
    return loss


class _LossInPieces(torch.autograd.Function):
    """Cross-entropy of a few rows at a time, without a float32 copy of all logits;
    backward recomputes softmax.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        # (masked,)
        norms = torch.cat(
            [x.float().logsumexp(-1) for x in torch.split(logits, LOSS_ROWS)]
        )
        ctx.save_for_backward(logits, labels, norms)
        return (norms - logits.gather(-1, labels[:, None]).squeeze(-1)).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, labels, norms = ctx.saved_tensors
        (scale,) = gradients
        result = torch.empty_like(logits)
        parts = (
            torch.split(each, LOSS_ROWS) for each in (logits, labels, norms, result)
        )
        for x, label, norm, out in zip(*parts, strict=True):
            softmax = (x.float() - norm[:, None]).exp_()  # (LOSS_ROWS, vocab)
            # minus onehot(label)
            softmax.scatter_add_(
                -1, label[:, None], softmax.new_full((len(x), 1), -1.0)
            )
            out.copy_(softmax.mul_(scale))
        return result, None


def _correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Count the rows whose largest logit (in a tie, the first) is that of the label.

    On a CPU argmax is ten times as slow as amax, so it is computed only for rows that
    may count.
    """
    logits = logits.detach()
    if not logits.is_cuda:
        # a missing label is below 0
        own = logits.gather(-1, labels[:, None].clamp(min=0)).squeeze(-1)
        # most rows are wrong, and need no argmax
        candidates = (own == logits.amax(-1)).nonzero().squeeze(-1)
        logits = logits[candidates]
        labels = labels[candidates]
    return (logits.argmax(-1) == labels).sum()


# Heads that attend to neighbours from the start
#
# With small random weights, attention is close to uniform and adds about 1 % to the
# residual, so that at small learning rates a network predicts only from piece
# frequencies for millions of pieces. Heads that read the pieces next to a gap from the
# start shorten that plateau (docs/choices.md).

# positions that the heads attend to: the piece before, the one after, and so on
OFFSETS = (-1, 1, -2, 2, -3, 3)
_MOST_FREQUENCIES = 32
# standard deviation of the position rows, relative to that of the word rows
_POSITION_STRENGTH = 1.2
_CUT_NORMAL_STD = 0.88  # of a unit normal that is truncated at two sigma, as in nn.init


@torch.no_grad()
def attend_locally(albert: Albert, *, seed: int) -> None:
    """Set positions, projection and some heads so that each of those heads attends to
    one offset.

    Position p is written as cos and sin of p w for jittered frequencies w, in a random
    subspace of E. The projection keeps lengths, so a reader B takes that subspace out
    of H. A head for offset d has W_k = B and W_q = R(d) B, where R turns each phase by
    d w: q_i k_j is largest at j = i + d.
    """
    config = albert.config
    embedding_size = config.embedding_size
    hidden_size = config.hidden_size
    draws = rng.stream(seed, "local-start", 0)
    num = min(_MOST_FREQUENCIES, config.head_size // 2, embedding_size // 2)
    frequencies = np.pi * (np.arange(num) + draws.random(num)) / num
    subspace = _isometry(draws, embedding_size, embedding_size)[: 2 * num]  # (2 num, E)
    phases = np.outer(np.arange(config.max_position_embeddings), frequencies)
    # (positions, 2 num), of squared length num
    waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    std = _POSITION_STRENGTH * _CUT_NORMAL_STD * config.initializer_range
    positions = waves @ subspace * (embedding_size / num) ** 0.5 * std
    albert.embedding.position.weight.copy_(torch.from_numpy(positions))
    reader = subspace  # of a hidden vector, where E = H and nothing is projected
    if config.projects_embeddings:
        isometry = _isometry(draws, hidden_size, embedding_size)  # (H, E)
        assert isinstance(albert.embedding.projection, torch.nn.Linear)
        # unit variance stays unit variance
        gain = (hidden_size / embedding_size) ** 0.5
        albert.embedding.projection.weight.copy_(torch.from_numpy(isometry * gain))
        reader = subspace @ isometry.T / gain  # (2 num, H)
    for block in albert.attention:
        for head, offset in enumerate(
            OFFSETS[: num_local_heads(config.num_attention_heads)]
        ):
            rows = slice(head * config.head_size, head * config.head_size + 2 * num)
            # the rotation of each pair (cos, sin) by its angle, (2 num, 2 num)
            cos = np.diag(np.cos(frequencies * offset))
            sin = np.diag(np.sin(frequencies * offset))
            rotation = np.block([[cos, -sin], [sin, cos]])
            block.key.weight[rows].copy_(torch.from_numpy(reader))
            block.query.weight[rows].copy_(torch.from_numpy(rotation @ reader))


def num_local_heads(num_heads: int) -> int:
    """Return how many heads start local: all but one or, of more than four heads, all
    but two.

    >>> [num_local_heads(n) for n in (1, 2, 4, 8, 12)]
    [0, 1, 3, 6, 6]
    """
    return min(len(OFFSETS), num_heads - (1 if num_heads <= 4 else 2))


def _isometry(
    draws: np.random.Generator, rows: int, columns: int
) -> NDArray[np.float64]:
    """Draw a matrix with orthonormal columns or, if there are fewer rows, orthonormal
    rows.
    """
    normal = draws.standard_normal((max(rows, columns), min(rows, columns)))
    basis: NDArray[np.float64] = np.linalg.qr(normal)[0]
    return basis if rows >= columns else basis.T
