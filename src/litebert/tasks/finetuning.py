"""The task of fine-tuning, for any kind of task; the baselines for its results, and its
default settings.

Each epoch draws every feature once, in an order that depends only on the seed, the
epoch and the step.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Generic

import numpy as np
import torch
from torch import Tensor

from litebert import rng
from litebert.config import FinetuneConfig, TeacherConfig, TrainConfig
from litebert.device import Device, device_of
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.fast import accelerate, is_packed, pack
from litebert.nn import AlbertForTask, Batch, Network, group_by_length
from litebert.origins import DEFAULT, SUITED
from litebert.runs import AnswerRow
from litebert.settings import Resolved
from litebert.tasks.kinds.family import (
    Answer,
    Example,
    Family,
    Feature,
    Output,
    Scoring,
    collate,
    targets_of,
)
from litebert.tasks.task import Loss, MicroBatch, Task, stack_sums
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class LabelledSet:
    """Examples to evaluate on, with their features."""

    examples: Sequence[Any]
    features: Sequence[Feature]


@dataclass(frozen=True)
class FinetuningWork(MicroBatch):
    """A micro-batch and the weight of its whole step, so that shares of the loss add
    up.

    `targets` lie end to end; `weights` has one per feature; `wanted` are the outputs of
    a teacher, if there is one.
    """

    targets: Tensor
    weights: Tensor
    step_weight: float
    wanted: Tensor | None = None

    def to(self, device: Device) -> "FinetuningWork":
        """Return the micro-batch on a device."""
        return FinetuningWork(
            batch=self.batch.to(device),
            targets=device.copy(self.targets),
            weights=device.copy(self.weights),
            step_weight=self.step_weight,
            wanted=None if self.wanted is None else device.copy(self.wanted),
        )


@dataclass(eq=False)
class Finetuning(Task[FinetuningWork], Generic[Example, Answer]):
    """The task of fine-tuning; with a `teacher`, the features have its outputs."""

    network: AlbertForTask
    family: Family[Example, Answer]
    features: Sequence[Feature]
    held_out: Mapping[str, LabelledSet]
    train: TrainConfig
    teacher: TeacherConfig | None = None
    world: World = ALONE
    _answers: dict[str, list[Answer]] | None = None

    num_sums = 2  # the weighted losses, the weights

    def __post_init__(self) -> None:
        accelerate(self.network.albert)

    def batches(self, start: int, stop: int) -> Iterator[Sequence[FinetuningWork]]:
        device = device_of(self.network)
        steps = range(start, stop)
        if device.is_cpu:
            # a second thread would take time from the one that computes
            yield from map(self._collate_step, steps)
            return
        with ThreadPoolExecutor(max_workers=1) as preparer:
            following = preparer.submit(self._collate_step, start)
            for step in steps:
                works = following.result()
                # collated while the GPU computes the step before
                if step + 1 < stop:
                    following = preparer.submit(self._collate_step, step + 1)
                yield [work.to(device) for work in works]

    def _collate_step(self, step: int) -> list[FinetuningWork]:
        """Return the micro-batches of this process in a step, on the CPU."""
        train = self.train
        numbers = draw_indices(
            len(self.features), step, batch_size=train.batch_size, seed=train.seed
        )
        features = [self.features[number] for number in numbers]
        # memory peaks in the first micro-batch
        features.sort(key=lambda feature: -feature.num_tokens)
        step_weight = sum(feature.weight for feature in features) or 1.0
        features = self.world.share(features)
        size = train.micro_batch_size or len(features)
        works = []
        for first in range(0, len(features), size):
            part = features[first : first + size]
            taught = [x.teacher for x in part if x.teacher is not None]
            wanted = torch.from_numpy(np.concatenate(taught)) if taught else None
            work = FinetuningWork(
                batch=collate(part),
                targets=targets_of(part),
                weights=torch.tensor([feature.weight for feature in part]),
                step_weight=step_weight,
                wanted=wanted,
            )
            works.append(work)
        return works

    def loss(self, work: FinetuningWork) -> Loss:
        self._answers = None  # the step will change the weights
        family = self.family
        teacher = self.teacher
        if teacher is None or work.wanted is None:
            losses = family.losses(self.network, work.batch, work.targets)
        else:
            assert isinstance(family, Scoring), (
                "`add_teacher_logits` refuses other kinds"
            )
            # (features, outputs), like the teacher's
            logits = family.logits(self.network, work.batch)
            imitated = work.weights * family.imitation(
                logits, work.wanted.view_as(logits), teacher.temperature
            )
            losses = (1 - teacher.weight) * family.losses_of(
                logits, work.targets
            ) + teacher.weight * imitated
        total = losses.sum()
        return Loss(total / work.step_weight, stack_sums(total, work.weights.sum()))

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        return {"loss": sums[0] / (sums[1] or 1.0)}

    def evaluate(self) -> dict[str, float]:
        self._answers = self._compute_answers(self.world)
        self.network.train()
        return measures_of(self.family, self.held_out, self._answers)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Go back to other weights of the network."""
        self.network.load_state_dict(weights)
        self._answers = None

    def answers(self) -> dict[str, list[Answer]]:
        """Return answers to every held-out set, the last evaluation's if no step has
        followed it; in one process.
        """
        return self._answers or self._compute_answers(ALONE)

    def _compute_answers(self, world: World) -> dict[str, list[Answer]]:
        answers = dict[str, list[Answer]]()
        for name, held_out in self.held_out.items():
            # processes share the groups of similar length
            features = held_out.features
            outputs = dict[int, Output]()
            lengths = [feature.num_tokens for feature in features]
            at_once = device_of(self.network).tokens_at_once
            groups = list(group_by_length(lengths, at_once))
            mine = [
                features[number] for number in chain.from_iterable(world.share(groups))
            ]
            found = world.gather(outputs_of(self.network, self.family.outputs, mine))
            for rank, theirs in enumerate(found):
                outputs.update(
                    zip(
                        chain.from_iterable(groups[rank :: world.size]),
                        theirs,
                        strict=True,
                    )
                )
            ordered = [outputs[number] for number in range(len(features))]
            answers[name] = self.family.answers(held_out.examples, features, ordered)
        return answers


def measures_of(
    family: Family[Any, Any],
    held_out: Mapping[str, LabelledSet],
    answers: Mapping[str, Sequence[Any]],
) -> dict[str, float]:
    """Measure the answers to every set; if there are several sets, names begin with the
    set's name.
    """
    measured: dict[str, float] = {}
    for split, given in answers.items():
        prefix = f"{split}_" if len(held_out) > 1 else ""
        values = family.measures(held_out[split].examples, given)
        measured |= {f"{prefix}{name}": value for name, value in values.items()}
    return measured


def draw_indices(
    num_features: int, step: int, *, batch_size: int, seed: int
) -> list[int]:
    """Return the indices of one step's features; each epoch visits every feature once,
    in random order.

    >>> sorted(draw_indices(4, 0, batch_size=2, seed=1) + draw_indices(4, 1, batch_size=2, seed=1))
    [0, 1, 2, 3]
    """
    epochs, positions = np.divmod(
        np.arange(step * batch_size, (step + 1) * batch_size), num_features
    )
    numbers = list[int]()
    for epoch in range(epochs[0], epochs[-1] + 1):
        own = positions[epochs == epoch]
        numbers += rng.permutation(seed, "features", epoch, num_features, own).tolist()
    return numbers


def answer(
    network: AlbertForTask,
    tokenizer: Tokenizer,
    family: Family[Example, Answer],
    examples: Sequence[Example],
    *,
    max_length: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Answer]:
    """Answer every example, cut to `max_length` pieces or to the most that the network
    can read.

    `progress` is called with the number of features done since its last call.
    """
    length = min(max_length or 1 << 30, network.config.max_position_embeddings)
    features = family.features(examples, tokenizer, max_length=length, training=False)
    return family.answers(
        examples,
        features,
        outputs_of(network, family.outputs, features, progress=progress),
    )


@torch.inference_mode()
def outputs_of(
    network: AlbertForTask,
    read: Callable[[AlbertForTask, Batch], Sequence[Output]],
    features: Sequence[Feature],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Output]:
    """Return what `read` returns for each feature; features of similar length are
    computed together.
    """
    network.eval()
    if not is_packed(network.albert):
        pack(network.albert, is_repeatable=True)
    device = device_of(network)
    outputs = dict[int, Output]()
    lengths = [feature.num_tokens for feature in features]
    for numbers in group_by_length(lengths, device.tokens_at_once):
        batch = collate([features[number] for number in numbers]).to(device)
        outputs.update(zip(numbers, read(network, batch), strict=True))
        if progress is not None:
            progress(len(numbers))
    return [outputs[number] for number in range(len(features))]


# Learning from the softened logits of another fine-tuned run, too (arXiv 1503.02531)


def add_teacher_logits(
    family: Family[Any, Any],
    features: Sequence[Feature],
    examples: Sequence[Any],
    teacher: Network,
    tokenizer: Tokenizer,
    *,
    max_length: int,
) -> list[Feature]:
    """Return the features with the logits of a teacher, which uses its own
    vocabulary.
    """
    head = teacher.head_config if isinstance(teacher, AlbertForTask) else None
    is_alike = head is not None and head.answers_as(family.head)
    if not (
        isinstance(teacher, AlbertForTask)
        and isinstance(family, Scoring)
        and head is not None
        and is_alike
    ):
        what = "this teacher cannot teach this task"
        expected = f"{family.head}; spans and tags cannot be taught"
        advice = "give a run of the same task and labels"
        raise LitebertError(
            "LB-884",
            what,
            received=head or "no task head",
            expected=expected,
            next=advice,
        )

    def logits(network: AlbertForTask, batch: Batch) -> Sequence[Output]:
        return list(family.logits(network, batch).float().cpu().numpy())

    # read as the teacher's head reads
    taught = replace(family, head=head)
    # one feature for each example
    of_teacher = taught.features(
        examples, tokenizer, max_length=max_length, training=True
    )
    given = outputs_of(teacher, logits, of_teacher)
    return [
        replace(feature, teacher=np.asarray(given[feature.example], dtype=np.float32))
        for feature in features
    ]


# What a result is compared with

# two standard errors of an accuracy: with up to 100 rows, a set is too small to detect
# most changes
FEW_ROWS = 0.1


def baseline(
    family: Family[Any, Any], train: Sequence[Any], held_out: Mapping[str, LabelledSet]
) -> dict[str, float]:
    """Measure answers that ignore the text, under the same names as an evaluation."""
    always = {
        name: family.constant(train, each.examples) for name, each in held_out.items()
    }
    return measures_of(family, held_out, always)


def doubts(
    key_measure: str,
    measures: Mapping[str, float],
    constant: Mapping[str, float],
    rows: Mapping[str, Sequence[AnswerRow]],
    baseline: str = "the most common label",
) -> tuple[str, ...]:
    """Return reasons not to trust a result: it does not clearly beat the baseline, or
    never varies.
    """
    found = []
    if key_measure in constant and measures[key_measure] <= constant[key_measure]:
        share = f"{key_measure} {measures[key_measure]:.4f}"
        found.append(
            f"{share} is no better than always giving {baseline}"
            f" ({constant[key_measure]:.4f})"
        )
    for split, answered in rows.items():
        name = f"{split}_accuracy" if len(rows) > 1 else "accuracy"
        accuracy = measures.get(name)
        commonest = constant.get(name)
        if accuracy is not None and commonest is not None and answered:
            # by the rule of succession
            rate = accuracy if 0 < accuracy < 1 else 1 / (len(answered) + 2)
            error = 2 * math.sqrt(rate * (1 - rate) / len(answered))
            if error >= FEW_ROWS or 0 < accuracy - commonest < error:
                found.append(
                    f"{name} {accuracy:.4f} on {len(answered):,} rows, {commonest:.4f}"
                    f" without learning: differences below {100 * error:.1f} points may"
                    " be chance (two standard errors)"
                )
        found += _doubts_of_correlation(key_measure, measures, len(answered))
        # a score has no probability, and is never quite right
        are_choices = any(row.confidence is not None for row in answered)
        if are_choices and not any(row.is_right for row in answered):
            found.append(
                f"not one of the {len(answered):,} answers to {split} is right"
            )
        answers = {row.answer for row in answered}
        texts = {row.text for row in answered}
        # Equal texts always get equal answers, whatever their labels: in that case the
        # data are to blame.
        if (
            len(answers) == 1
            and len({row.expected for row in answered}) > 1
            and len(texts) > 1
        ):
            found.append(
                f"every answer to {split} is the same: {answers.pop() or 'none'}"
            )
    return tuple(found)


def is_start_kept(
    key_measure: str,
    first: Mapping[str, float],
    last: Mapping[str, float],
    constant: Mapping[str, float],
) -> bool:
    """Return whether training lost what the start knew.

    A start that is no better than the baseline knows nothing: on few rows, the
    regression may give the most common label to all of them. That may well be more
    often right than a model that has begun to tell the labels apart.
    """
    start = first[key_measure]
    knows_nothing = start <= constant.get(key_measure, -math.inf)
    return last[key_measure] < start and not knows_nothing


def _doubts_of_correlation(
    key_measure: str, measures: Mapping[str, float], num_rows: int
) -> list[str]:
    """Return that a correlation on few rows is inexact: its inverse hyperbolic tangent
    has a standard error of 1 / sqrt(n - 3) (Fisher, 1921).
    """
    correlation = measures.get(key_measure, math.nan)
    is_correlation = key_measure.endswith(("spearman", "pearson"))
    if not is_correlation or not -1 < correlation < 1:
        return []
    if num_rows <= 3:
        return [f"{key_measure} {correlation:.4f} on {num_rows} rows says nothing"]
    two_errors = 2 / math.sqrt(num_rows - 3)
    center = math.atanh(correlation)
    low = math.tanh(center - two_errors)
    high = math.tanh(center + two_errors)
    if high - low < 2 * FEW_ROWS:
        return []
    return [
        f"{key_measure} {correlation:.4f} on {num_rows:,} rows: on others it may be"
        f" between {low:.2f} and {high:.2f} (two standard errors)"
    ]


def doubts_of_training(
    key_measure: str,
    first: Mapping[str, float],
    last: Mapping[str, float],
    constant: Mapping[str, float],
    rows: Mapping[str, Sequence[AnswerRow]],
) -> tuple[str, ...]:
    """Say if training lost what the vectors gave before it, added nothing, or no more
    than chance may add.
    """
    before = first[key_measure]
    after = last[key_measure]
    values = f"{key_measure} {after:.4f} at the last step, {before:.4f} at the start"
    number = len(next(iter(rows.values()), ()))
    if is_start_kept(key_measure, first, last, constant):
        return (
            f"training made the model worse: {values}; the model is that of the best"
            " evaluation",
        )
    if after < before:
        return (
            f"{values}; the start is no better than always giving the same answer, so"
            " the model of the last step is kept",
        )
    if after == before:
        return (f"training added nothing that {number:,} rows can show: {values}",)
    is_share = key_measure.endswith("accuracy")
    if is_share and number and 0 < before < 1:
        error = 2 * math.sqrt(before * (1 - before) / number)
        if after - before < error:
            return (
                f"training added no more than chance may: {values}, on {number:,} rows",
            )
    return ()


# Default learning rate and length, by the size of the network and the data
#
# The recipes use the values of the paper, for networks of its sizes and amount of
# pretraining. With those, smaller networks never do better than the most common label.
# The values here were chosen from runs on small data: benchmarks/tasks/RESULTS.md, "500
# rows".

# hidden size of the smallest published network (Table 1); recipes are for this size and
# up
PUBLISHED_SIZE = 768
MIN_EPOCHS = 3
MAX_EPOCHS = 20
# Hidden size, rate and fewest steps. At 1e-3, and at 3e-4 with more steps, all examples
# got the same answer.
CLS_DEFAULTS = 256, 1e-4, 150
# For a head on the mean of the tokens, with bias correction; with twice the steps,
# results on pairs are worse. With a fitted head and three epochs of 500 rows instead of
# five, SICK and SST-2 stay within a point, and CoLA loses 5.5.
MEAN_DEFAULTS = 384, 2e-4, 75
# For vectors whose cosines are trained: three epochs of 500 pairs. At 1e-4, 500 pairs of
# STS-B are best after one epoch and lose up to a point after it; 3e-5 is slower.
VECTOR_DEFAULTS = 384, 5e-5, 47
# The encoder is pretrained and that head is not: with ten times the rate for the head,
# MRPC reaches 67.8 instead of 66.4, where always answering the most common label gets
# 65.6.
MEAN_HEAD_SCALE = 10.0
# A head that starts from a regression has nothing to catch up with.
FITTED_HEAD_SCALE = 1.0


def adapt_defaults(
    resolved: Resolved[FinetuneConfig],
    hidden_size: int,
    num_features: int,
    *,
    reads_mean: bool = False,
    fits_head: bool = False,
    are_vectors: bool = False,
) -> Resolved[FinetuneConfig]:
    """Set rate, warm-up and epochs for a network smaller than the published ones.

    They override recipes and schema defaults, but not files or flags. The rate falls as
    the network grows, and is never above the measured one. Small data get more epochs,
    so that there are enough steps.
    """
    if hidden_size >= PUBLISHED_SIZE:
        return resolved
    config = resolved.config
    origins = resolved.origins
    free = {
        name
        for name, origin in origins.items()
        if origin == DEFAULT or origin.kind == "recipe"
    }
    size, peak, steps = MEAN_DEFAULTS if reads_mean else CLS_DEFAULTS
    if are_vectors:
        size, peak, steps = VECTOR_DEFAULTS
    suited = {
        "optim.learning_rate": peak * min(1.0, size / hidden_size),
        "optim.warmup_steps": 0.1,
    }
    if are_vectors:
        suited["optim.bias_correction"] = True
    if reads_mean:
        suited |= {
            "optim.bias_correction": True,
            "optim.head_rate_scale": FITTED_HEAD_SCALE
            if fits_head
            else MEAN_HEAD_SCALE,
        }
    suited = {name: value for name, value in suited.items() if name in free}
    if {"train.epochs", "train.steps"} <= free:
        epochs = math.ceil(steps * config.train.batch_size / num_features)
        suited |= {
            "train.epochs": min(max(epochs, MIN_EPOCHS), MAX_EPOCHS),
            "train.steps": 0,
        }
    for name, value in suited.items():
        section, _, field = name.partition(".")
        changed = getattr(config, section).model_copy(update={field: value})
        config = config.model_copy(update={section: changed})
    return Resolved(config, origins | dict.fromkeys(suited, SUITED))
