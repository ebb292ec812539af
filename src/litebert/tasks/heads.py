"""The heads of pretraining: what each learns, and what it reports.

Pretraining learns masked words and sentence order, weighted equally (run_pretraining.py
L177). A plug-in may add heads (docs/extending/pretraining-head.md); `objective.heads`
says which of them a run has, with their weights.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.fast.losses import count_right, masked_loss
from litebert.nn import HeadContext, MaskedLMHead
from litebert.objectives import NO_LABEL
from litebert.plugins import PRETRAINING_HEADS
from litebert.tasks.task import Loss, MicroBatch, stack_sums

# added to the number of masked tokens, as upstream (run_pretraining.py L337)
EPSILON = 1e-5


@dataclass(frozen=True)
class PretrainingWork(MicroBatch):
    """A micro-batch and the totals of its step, so that shares of the loss add up."""

    masked_positions: Tensor  # (masked,), indices into the flat tokens
    masked_ids: Tensor  # (masked,), what stood there
    sentence_labels: Tensor | None  # (sequences,); None without a sentence objective
    # totals of the step in all processes: masked tokens, and sequences with a label
    step_masked: int
    step_labeled: int


@dataclass(frozen=True)
class Measure:
    """A number that pretraining reports."""

    name: str  # in metrics.jsonl
    short: str = ""  # in a line of the log, a format; "" is left out
    title: str = ""  # of its curve in the report; "" is not drawn
    caption: str = "Lower is better."
    # its value without any learning, or the name of the measure that has this value
    chance: float | str | None = None

    @property
    def is_share(self) -> bool:
        """Whether it is written as a percentage."""
        return "%" in self.short


@dataclass(frozen=True, kw_only=True)
class PretrainingHead:
    """A head of pretraining: one or more layers on the last states, and what they learn.

    `make` builds the module, which the network holds under the head's name. `reads`
    returns the tokens whose last states the head needs, as indices into the flat
    tokens; `logits` turns these states into logits. Both get a `HeadContext`: the
    batch, the masked positions, the encoder. `loss(logits, work)` returns the
    micro-batch's share of the step's loss, with three sums: the losses, the right
    answers and all answers; or None if a batch has no labels for it. `measures` are the
    mean loss and the accuracy that follow from the sums.
    """

    make: Callable[[AlbertConfig], nn.Module]
    reads: Callable[[HeadContext], Tensor]
    # (module, states of those tokens, context)
    logits: Callable[[Any, Tensor, HeadContext], Tensor]
    loss: Callable[[Tensor, PretrainingWork], Loss | None]
    measures: tuple[Measure, Measure]
    # what its layers are called on disk, (in ALBERT, in BERT); others keep their name
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def masked_lm_objective(logits: Tensor, work: PretrainingWork) -> Loss:
    """Return the mean cross-entropy of the masked tokens, from logits (masked,
    vocab).
    """
    loss = masked_loss(logits, work.masked_ids)
    count = logits.new_full((), len(logits), dtype=torch.int64)
    return Loss(
        loss / (work.step_masked + EPSILON),
        stack_sums(loss, count_right(logits, work.masked_ids), count),
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
        loss / max(1, work.step_labeled),
        stack_sums(loss, count_right(logits, labels), (labels != NO_LABEL).sum()),
    )


PRETRAINING_HEADS.add(
    "masked_lm",
    PretrainingHead(
        make=MaskedLMHead,
        reads=lambda context: context.masked,
        logits=lambda head, states, context: head(states, context.word_table),
        loss=masked_lm_objective,
        measures=(
            Measure("masked_lm_loss", short="masked LM {:.3f}", title="Masked-LM loss"),
            Measure(
                "masked_lm_accuracy",
                short="acc {:.1%}",
                title="Masked-LM accuracy",
                caption="Share of the masked tokens that are named exactly.",
                chance="masked_lm_baseline",
            ),
        ),
        names={
            "": ("predictions", "cls.predictions"),
            "dense": ("predictions.dense", "cls.predictions.transform.dense"),
            "norm": ("predictions.LayerNorm", "cls.predictions.transform.LayerNorm"),
        },
    ),
)
# one layer on the pooled vector: 0 in order, 1 swapped
PRETRAINING_HEADS.add(
    "sentence_order",
    PretrainingHead(
        make=lambda config: nn.Sequential(
            OrderedDict(classifier=nn.Linear(config.hidden_size, 2))
        ),
        reads=lambda context: context.batch.first_tokens,
        logits=lambda head, states, context: head(context.albert.pool(states)),
        loss=sentence_order_objective,
        measures=(
            Measure("sentence_order_loss", "sentence order {:.3f}"),
            Measure(
                "sentence_order_accuracy",
                short="acc {:.1%}",
                title="Sentence order accuracy",
                caption="Share of the sentence pairs that are judged right.",
                chance=0.5,
            ),
        ),
        names={"classifier": ("sop_classifier.classifier", "cls.seq_relationship")},
    ),
)
MASK_TOKEN = (
    Measure(
        "mask_token_loss",
        title="[MASK] loss",
        caption="Only of the positions that show [MASK]. Lower is better.",
    ),
    Measure(
        "mask_token_accuracy",
        short="[MASK] {:.1%}",
        title="[MASK] accuracy",
        caption="Share of the positions that show [MASK] that are named exactly.",
    ),
)
WITH_TEACHER = (
    Measure(
        "hidden_error",
        short="hidden {:.3f}",
        title="Hidden-state error",
        caption="Distance to the teacher's states. Lower is better.",
    ),
    Measure(
        "vector_error",
        short="vectors {:.3f}",
        title="Text-vector error",
        caption="Distance to the teacher's vectors. Lower is better.",
    ),
)


def pretraining_measures() -> tuple[Measure, ...]:
    """Return everything that pretraining and distillation measure, in the order of a
    log line.
    """
    masked, *others = (head.measures for head in PRETRAINING_HEADS.values())
    return (*masked, *MASK_TOKEN, *chain(*others), *WITH_TEACHER)
