"""Distillation: a student learns masked words, sentence order, and a teacher's states
of the same text.

A step has two lessons: masked pairs (masked LM, sentence order, hidden states), and
short plain texts (hidden states, one vector per text). The teacher reads both unmasked
(`litebert.tasks.teacher`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.config import DistilConfig
from litebert.device import device_of
from litebert.distributed import ALONE, World
from litebert.nn import AlbertForPretraining, HeadContext, pool_rows
from litebert.objectives import Loader, PretrainingBatch, prefetch
from litebert.tasks.heads import PretrainingWork
from litebert.tasks.pretraining import Pretraining, micro_batches
from litebert.tasks.task import Loss, MicroBatch, Task, stack_sums
from litebert.tasks.teacher import Teacher, TeacherVectors


@dataclass(frozen=True)
class Lesson(MicroBatch):
    """What a student learns at once: masked `pairs` of segments, or plain texts with
    the teacher's `vectors`.
    """

    share: float  # of the tokens of the step, 0 to 1
    world: World  # the processes that share the lesson
    pairs: PretrainingWork | None = None
    # The teacher's states of the same text, unmasked: for each step of the student
    # (kept, hidden), at the tokens `kept` (kept,) that have a counterpart. There are
    # none if `distil.hidden` is 0 or if only the teacher's vectors are known.
    kept: Tensor | None = None
    targets: Sequence[Tensor] = ()
    vectors: Tensor | None = None  # of plain texts, (texts, hidden)


@dataclass(eq=False)
class Distillation(Task[Lesson]):
    """The task of distillation.

    At a masked position the student must predict the state of the hidden word (as in
    data2vec, arXiv 2202.03555). Hidden states are compared by squared error relative to
    the teacher's size, vectors by cosine.
    """

    pretraining: Pretraining
    teacher: Teacher | TeacherVectors
    open_texts: Callable[[], Loader]
    held_out_texts: Sequence[PretrainingBatch]
    distil: DistilConfig

    def __post_init__(self) -> None:
        self.network: AlbertForPretraining = self.pretraining.network
        # The sums of a step: those of pretraining, then the weighted errors of states
        # and their weights, the errors of vectors and their number.
        self.num_sums = self.pretraining.num_sums + 4
        self._layers = list[int]()
        self._errors = ["vector_error"]
        if isinstance(self.teacher, Teacher):
            # for each step of the student, the teacher's layer at the same depth
            depth = len(self.network.albert.plan)
            teacher_depth = len(self.teacher.encoder.plan)
            for step in range(1, depth + 1):
                self._layers.append(round(step * teacher_depth / depth))
            self._errors = ["hidden_error", "vector_error"]

    def batches(self, start: int, stop: int) -> Iterator[Sequence[Lesson]]:
        """Yield two lessons a step: pairs, then texts."""
        assert self.pretraining.open_loader is not None
        world = self.pretraining.world
        all_pairs = self._prefetch(self.pretraining.open_loader, start, stop)
        all_texts = self._prefetch(self.open_texts, start, stop)
        for pairs, texts in zip(all_pairs, all_texts, strict=True):
            num_pairs, num_texts = world.totals(pairs.offsets[-1], texts.offsets[-1])
            total = num_pairs + num_texts  # all in tokens
            yield [
                self._lesson_of_pairs(pairs, num_pairs / total),
                self._lesson_of_texts(texts, num_texts / total, world),
            ]

    def _prefetch(
        self, open_loader: Callable[[], Loader], start: int, stop: int
    ) -> Iterator[PretrainingBatch]:
        """Yield the batches of steps, which other processes prepare."""
        world = self.pretraining.world
        return prefetch(
            open_loader,
            range(start, stop),
            rank=world.rank,
            world_size=world.size,
            workers=self.pretraining.train.loader_workers,
        )

    def _lesson_of_pairs(self, batch: PretrainingBatch, share: float) -> Lesson:
        """Return masked pairs for the student, with the teacher's states of the same
        pairs unmasked.
        """
        world = self.pretraining.world
        [work] = micro_batches(batch, None, device_of(self.network), world)
        lesson = Lesson(work.batch, share, world, pairs=work)
        if isinstance(self.teacher, TeacherVectors) or not self.distil.hidden:
            return lesson  # no states are known, or none are to be learned
        ids = batch.unmasked_ids()
        reading = self.teacher.read(ids, batch.offsets, self._layers)
        return replace(lesson, kept=reading.kept, targets=reading.states)

    def _lesson_of_texts(
        self, batch: PretrainingBatch, share: float, world: World
    ) -> Lesson:
        """Return plain texts, with the teacher's states and vectors of them."""
        ids = batch.unmasked_ids()
        plain = replace(batch, ids=ids)
        [work] = micro_batches(plain, None, device_of(self.network), world)
        lesson = Lesson(work.batch, share, world)
        if isinstance(self.teacher, TeacherVectors):
            assert batch.vectors is not None, "its texts come with their vectors"
            return replace(lesson, vectors=self.teacher.project(batch.vectors))
        reading = self.teacher.read(ids, batch.offsets, self._layers)
        return replace(
            lesson,
            kept=reading.kept,
            targets=reading.states,
            vectors=reading.vectors,
        )

    def loss(self, work: Lesson) -> Loss:
        """Return the loss of a lesson: the error of its states, and beside it the loss
        of pretraining for pairs, or the error of vectors for plain texts.

        Both lessons of a step have an error of states. Each counts by its lesson's share
        of the tokens, so that together they are the mean over all tokens.
        """
        _, *states = self.network.albert.states(work.batch)  # each (tokens, hidden)
        last = states[-1]
        hidden = self.hidden_error(states, work)
        total = work.share * (self.distil.hidden * hidden)
        share = work.share if work.targets else 0.0
        # the errors of all processes add up to that of the lesson, so the weights must
        # add up to its share
        weight = hidden.new_full((), share / work.world.size)
        of_states = stack_sums(hidden * share, weight)  # (2,)

        if work.pairs is not None:
            learned = self._pretraining_loss(last, work, work.pairs)
            total = total + self.distil.pretraining * learned.total
            of_pretraining = learned.sums
            of_vectors = of_states.new_zeros(2)
        else:
            distances = self._vector_errors(last, work)  # (texts,)
            [num_texts] = work.world.totals(len(distances))
            total = total + self.distil.vectors * distances.sum() / num_texts
            of_pretraining = of_states.new_zeros(self.pretraining.num_sums)
            number = distances.new_full((), len(distances))
            of_vectors = stack_sums(distances.sum(), number)  # (2,)
        return Loss(total, torch.cat([of_pretraining, of_states, of_vectors]))

    def _pretraining_loss(
        self, last: Float[Tensor, "tokens hidden"], work: Lesson, pairs: PretrainingWork
    ) -> Loss:
        """Return the loss of masked LM and sentence order, from the last states."""
        context = HeadContext(work.batch, pairs.masked_positions, self.network.albert)
        tokens_by_head = self.network.tokens_read(context)
        states_by_head = [last[tokens] for tokens in tokens_by_head]
        return self.pretraining.loss(pairs, self.network.read(context, states_by_head))

    def _vector_errors(
        self, last: Float[Tensor, "tokens hidden"], work: Lesson
    ) -> Float[Tensor, " texts"]:
        """Return the cosine distance of each text's vector from the teacher's."""
        assert work.vectors is not None
        pooling = self.teacher.vectors.pooling
        vectors = pool_rows(last.float(), work.batch, pooling)
        return 1 - F.cosine_similarity(vectors, work.vectors.float(), dim=-1)

    def hidden_error(self, states: Sequence[Tensor], work: Lesson) -> Tensor:
        """Return the error of the student's states: half of it is the error after the
        last step, half the mean of the errors after the earlier steps.

        Of several processes, each returns its part; the parts add up to the error.
        """
        if not work.targets:
            return states[-1].new_zeros((), dtype=torch.float32)
        sizes = [target.square().sum() for target in work.targets]  # one for each step
        work.world.sum_(sizes)  # errors are relative to all texts of the lesson
        errors = list[Tensor]()
        for state, target, size in zip(states, work.targets, sizes, strict=True):
            difference = state[work.kept].float() - target  # (kept, hidden)
            errors.append(difference.square().sum() / size)
        *earlier, last = errors
        if not earlier:
            return last
        return (torch.stack(earlier).mean() + last) / 2

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Return the measures of pretraining, and the mean errors."""
        *pretraining, hidden, weight, vector, num_texts = sums
        errors = {
            "hidden_error": hidden / (weight or 1.0),
            "vector_error": vector / (num_texts or 1.0),
        }
        known = {name: errors[name] for name in self._errors}
        return self.pretraining.measures(pretraining) | known

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure as pretraining does, and against the teacher on held-out plain
        texts.
        """
        values = self.pretraining.evaluate()
        self.network.eval()
        device = device_of(self.network)
        sums = torch.zeros(self.num_sums, dtype=device.sum_dtype, device=device.place)
        for batch in self.pretraining.world.share(self.held_out_texts):
            sums += self.loss(self._lesson_of_texts(batch, 1.0, ALONE)).sums
        self.pretraining.world.sum_([sums])
        self.network.train()
        measured = self.measures(sums.tolist())
        return values | {name: measured[name] for name in self._errors}
