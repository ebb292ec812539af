"""The task of fine-tuning, for any kind of task, and the answers of a fine-tuned model.

Each epoch draws every feature once, in an order that depends only on the seed, the
epoch and the step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Generic

import numpy as np
import torch
from torch import Tensor

from litebert import rng
from litebert.config import HeadConfig, TeacherConfig, TrainConfig
from litebert.device import Device, device_of
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.fast import accelerate, is_packed, pack
from litebert.nn import AlbertForTask, Batch, Network, group_by_length
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
class LabeledSet:
    """Examples to evaluate on, with their features."""

    examples: Sequence[Any]
    features: Sequence[Feature]


@dataclass(frozen=True)
class FinetuningWork(MicroBatch):
    """A micro-batch and the weight of its whole step, so that shares of the loss add
    up.

    A `targets` tensor has those of all features end to end, since a feature may have
    several: the two ends of a span, or a tag for each word.
    """

    targets: Tensor
    weights: Tensor  # (features,)
    step_weight: float  # the sum over the whole step, in all processes
    # (features * outputs,), the logits of a teacher, if there is one
    teacher_logits: Tensor | None = None

    @classmethod
    def of_features(
        cls, features: Sequence[Feature], step_weight: float
    ) -> "FinetuningWork":
        """Collate the features of a micro-batch, on the CPU."""
        # the teacher's logits of each feature, (outputs,)
        logits = [x.teacher for x in features if x.teacher is not None]
        teacher_logits = None
        if logits:
            teacher_logits = torch.from_numpy(np.concatenate(logits))
        return cls(
            batch=collate(features),
            targets=targets_of(features),
            weights=torch.tensor([feature.weight for feature in features]),
            step_weight=step_weight,
            teacher_logits=teacher_logits,
        )

    def to(self, device: Device) -> "FinetuningWork":
        """Return the micro-batch on a device."""
        teacher_logits = self.teacher_logits
        if teacher_logits is not None:
            teacher_logits = device.copy(teacher_logits)
        return FinetuningWork(
            batch=self.batch.to(device),
            targets=device.copy(self.targets),
            weights=device.copy(self.weights),
            step_weight=self.step_weight,
            teacher_logits=teacher_logits,
        )


@dataclass(eq=False)
class Finetuning(Task[FinetuningWork], Generic[Example, Answer]):
    """The task of fine-tuning; with a `teacher`, the features have its outputs."""

    network: AlbertForTask
    family: Family[Example, Answer]
    features: Sequence[Feature]
    held_out: Mapping[str, LabeledSet]
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
        works = list[FinetuningWork]()
        for first in range(0, len(features), size):
            part = features[first : first + size]
            works.append(FinetuningWork.of_features(part, step_weight))
        return works

    def loss(self, work: FinetuningWork) -> Loss:
        self._answers = None  # the step will change the weights
        if self.teacher is None or work.teacher_logits is None:
            losses = self.family.losses(self.network, work.batch, work.targets)
        else:
            losses = self._taught_losses(work, work.teacher_logits, self.teacher)
        total = losses.sum()
        return Loss(total / work.step_weight, stack_sums(total, work.weights.sum()))

    def _taught_losses(
        self, work: FinetuningWork, teacher_logits: Tensor, teacher: TeacherConfig
    ) -> Tensor:
        """Return for each feature the mean of its loss against the label and against
        the teacher, (features,).
        """
        family = self.family
        assert isinstance(family, Scoring), "`add_teacher_logits` refuses other kinds"
        logits = family.logits(self.network, work.batch)  # (features, outputs)
        hard = family.losses_of(logits, work.targets)
        soft = work.weights * family.imitation(
            logits, teacher_logits.view_as(logits), teacher.temperature
        )
        return (1 - teacher.weight) * hard + teacher.weight * soft

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
        for split, held_out in self.held_out.items():
            outputs = self._compute_outputs(held_out.features, world)
            answers[split] = self.family.answers(
                held_out.examples, held_out.features, outputs
            )
        return answers

    def _compute_outputs(
        self, features: Sequence[Feature], world: World
    ) -> list[Output]:
        """Return the outputs for each feature; processes share the groups of similar
        length.
        """
        lengths = [feature.num_tokens for feature in features]
        at_once = device_of(self.network).tokens_at_once
        groups = list(group_by_length(lengths, at_once))  # of indices of features
        indices_by_rank = list[list[int]]()
        for rank in range(world.size):
            share = World(rank, world.size).share(groups)
            indices_by_rank.append(list(chain.from_iterable(share)))
        mine = [features[index] for index in indices_by_rank[world.rank]]
        outputs_by_rank = world.gather(
            outputs_of(self.network, self.family.outputs, mine)
        )
        by_index = dict[int, Output]()
        for indices, outputs in zip(indices_by_rank, outputs_by_rank, strict=True):
            by_index.update(zip(indices, outputs, strict=True))
        return [by_index[index] for index in range(len(features))]


def measures_of(
    family: Family[Any, Any],
    held_out: Mapping[str, LabeledSet],
    answers: Mapping[str, Sequence[Any]],
) -> dict[str, float]:
    """Measure the answers to every set; if there are several sets, names begin with the
    set's name.
    """
    measured = dict[str, float]()
    for split, split_answers in answers.items():
        prefix = f"{split}_" if len(held_out) > 1 else ""
        values = family.measures(held_out[split].examples, split_answers)
        for name, value in values.items():
            measured[f"{prefix}{name}"] = value
    return measured


def draw_indices(
    num_features: int, step: int, *, batch_size: int, seed: int
) -> list[int]:
    """Return the indices of one step's features; each epoch visits every feature once,
    in random order.

    >>> first = draw_indices(4, 0, batch_size=2, seed=1)
    >>> sorted(first + draw_indices(4, 1, batch_size=2, seed=1))
    [0, 1, 2, 3]
    """
    # (batch_size,), counted from the first draw of the run
    draws = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs, places = np.divmod(draws, num_features)  # places in the order of an epoch
    indices = list[int]()
    for epoch in np.unique(epochs).tolist():
        in_epoch = places[epochs == epoch]
        order = rng.permutation(seed, "features", epoch, num_features, in_epoch)
        indices += order.tolist()
    return indices


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


# ---- learning from the softened logits of another run, too (arXiv 1503.02531) ---------


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
    if not isinstance(teacher, AlbertForTask) or not isinstance(family, Scoring):
        raise _cannot_teach(family, head)
    if head is None or not head.answers_as(family.head):
        raise _cannot_teach(family, head)

    def logits(network: AlbertForTask, batch: Batch) -> Sequence[Output]:
        return list(family.logits(network, batch).float().cpu().numpy())

    # The texts are read as the teacher's head reads them, one feature for each example.
    as_teacher = replace(family, head=head)
    features_of_teacher = as_teacher.features(
        examples, tokenizer, max_length=max_length, training=True
    )
    outputs = outputs_of(teacher, logits, features_of_teacher)  # by example
    taught = list[Feature]()
    for feature in features:
        row = np.asarray(outputs[feature.example], dtype=np.float32)  # (outputs,)
        taught.append(replace(feature, teacher=row))
    return taught


def _cannot_teach(
    family: Family[Any, Any], teacher: HeadConfig | None
) -> LitebertError:
    """Return the error for a teacher without a head that gives logits of this task."""
    return LitebertError(
        "LB-884",
        "this teacher cannot teach this task",
        received=teacher or "no task head",
        expected=f"{family.head}; spans and tags cannot be taught",
        next="give a run of the same task and labels",
    )
